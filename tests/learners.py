"""Engines as learners write them, in the dialects of the texts: right ones, and ones with a mistake.

A wrong engine is a right one with some lines changed, so that each has one mistake, or a text of
its own where the mistake is in the plan. Beside each wrong one: words of the idea that is missing.
"""

MICROGRAD = """
import math

class Value:
    def __init__(self, data, _children=(), _op='', label=''):
        self.data = data
        self.grad = 0.0
        self._backward = lambda: None
        self._prev = set(_children)
        self._op = _op
        self.label = label

    def __add__(self, other):
        other = other if isinstance(other, Value) else Value(other)
        out = Value(self.data + other.data, (self, other), '+')
        def _backward():
            self.grad += out.grad * 1.0
            other.grad += out.grad * 1.0
        out._backward = _backward
        return out

    def __mul__(self, other):
        other = other if isinstance(other, Value) else Value(other)
        out = Value(self.data * other.data, (self, other), '*')
        def _backward():
            self.grad += other.data * out.grad
            other.grad += self.data * out.grad
        out._backward = _backward
        return out

    def __pow__(self, p):
        out = Value(self.data ** p, (self,), f'**{p}')
        def _backward():
            self.grad += p * self.data ** (p - 1) * out.grad
        out._backward = _backward
        return out

    def tanh(self):
        t = (math.exp(2 * self.data) - 1) / (math.exp(2 * self.data) + 1)
        out = Value(t, (self,), 'tanh')
        def _backward():
            self.grad += (1 - t ** 2) * out.grad
        out._backward = _backward
        return out

    def relu(self):
        out = Value(0 if self.data < 0 else self.data, (self,), 'ReLU')
        def _backward():
            self.grad += (out.data > 0) * out.grad
        out._backward = _backward
        return out

    def __neg__(self): return self * -1
    def __radd__(self, other): return self + other
    def __rmul__(self, other): return self * other
    def __sub__(self, other): return self + (-other)
    def __rsub__(self, other): return other + (-self)
    def __truediv__(self, other): return self * other ** -1
    def __rtruediv__(self, other): return other * self ** -1

    def backward(self):
        topo = []
        visited = set()
        def build_topo(v):
            if v not in visited:
                visited.add(v)
                for child in v._prev:
                    build_topo(child)
                topo.append(v)
        build_topo(self)
        self.grad = 1.0
        for node in reversed(topo):
            node._backward()
"""

MICROGPT = """
import math

class Value:
    __slots__ = ('data', 'grad', '_children', '_local_grads')

    def __init__(self, data, children=(), local_grads=()):
        self.data = data
        self.grad = 0
        self._children = children
        self._local_grads = local_grads

    def __add__(self, other):
        other = other if isinstance(other, Value) else Value(other)
        return Value(self.data + other.data, (self, other), (1, 1))

    def __mul__(self, other):
        other = other if isinstance(other, Value) else Value(other)
        return Value(self.data * other.data, (self, other), (other.data, self.data))

    def __pow__(self, p):
        return Value(self.data ** p, (self,), (p * self.data ** (p - 1),))

    def log(self): return Value(math.log(self.data), (self,), (1 / self.data,))
    def exp(self): return Value(math.exp(self.data), (self,), (math.exp(self.data),))
    def relu(self): return Value(max(0, self.data), (self,), (float(self.data > 0),))
    def tanh(self):
        t = math.tanh(self.data)
        return Value(t, (self,), (1 - t * t,))
    def __neg__(self): return self * -1
    def __radd__(self, other): return self + other
    def __sub__(self, other): return self + (-other)
    def __rsub__(self, other): return other + (-self)
    def __rmul__(self, other): return self * other
    def __truediv__(self, other): return self * other ** -1
    def __rtruediv__(self, other): return other * self ** -1

    def backward(self):
        topo = []
        visited = set()
        def build_topo(v):
            if v not in visited:
                visited.add(v)
                for child in v._children:
                    build_topo(child)
                topo.append(v)
        build_topo(self)
        self.grad = 1
        for v in reversed(topo):
            for child, local_grad in zip(v._children, v._local_grads):
                child.grad += local_grad * v.grad
"""

CSHARP = """
class Value:
    def __init__(self, data, inputs=None, local_grads=None):
        self.Data = data
        self.Grad = 0.0
        self._inputs = inputs
        self._localGrads = local_grads

    def Add(self, other): return Value(self.Data + other.Data, [self, other], [1.0, 1.0])
    def Mul(self, other): return Value(self.Data * other.Data, [self, other], [other.Data, self.Data])
    def Pow(self, p): return Value(self.Data ** p, [self], [p * self.Data ** (p - 1)])

    def Backward(self, topo=None, visited=None, stack=None):
        topo = [] if topo is None else topo
        visited = set() if visited is None else visited
        stack = [] if stack is None else stack
        stack.append((self, 0))
        while stack:
            current, index = stack.pop()
            inputs = current._inputs
            if inputs is not None and index < len(inputs):
                stack.append((current, index + 1))
                if inputs[index] not in visited:
                    visited.add(inputs[index])
                    stack.append((inputs[index], 0))
            else:
                topo.append(current)
        self.Grad = 1.0
        for v in reversed(topo):
            if v.Grad == 0 or v._inputs is None:
                continue
            for j in range(len(v._inputs)):
                v._inputs[j].Grad += v._localGrads[j] * v.Grad
"""

BUFFERS = CSHARP.replace(
    "def Backward(self, topo=None, visited=None, stack=None):",
    "def Backward(self, topo, visited, stack):",
)

TYPESCRIPT = """
import math

class Value:
    def __init__(self, data, children=(), localGrads=()):
        self.data, self.grad, self.children, self.localGrads = data, 0, children, localGrads

    def add(self, o): return Value(self.data + o.data, [self, o], [1, 1])
    def mul(self, o): return Value(self.data * o.data, [self, o], [o.data, self.data])
    def tanh(self): return Value(math.tanh(self.data), [self], [1 - math.tanh(self.data) ** 2])

    def backward(self):
        topo, visited = [], set()
        def buildTopo(v):
            if v not in visited:
                visited.add(v)
                for child in v.children:
                    buildTopo(child)
                topo.append(v)
        buildTopo(self)
        self.grad = 1
        for v in topo[::-1]:
            for i in range(len(v.children)):
                v.children[i].grad += v.localGrads[i] * v.grad
"""

FUNCTIONS = """
class Node:
    def __init__(self, value, parents=()):
        self.value = value
        self.gradient = 0.0
        self.parents = [p for p, _ in parents]
        self.local_grads = [g for _, g in parents]

    def __add__(self, other): return Node(self.value + other.value, ((self, 1.0), (other, 1.0)))
    def __mul__(self, other):
        return Node(self.value * other.value, ((self, other.value), (other, self.value)))

def topological_order(v):
    found, seen, stack = [], {id(v)}, [(v, iter(v.parents))]
    while stack:
        node, rest = stack[-1]
        for p in rest:
            if id(p) not in seen:
                seen.add(id(p))
                stack.append((p, iter(p.parents)))
                break
        else:
            found.append(node)
            stack.pop()
    return found

def backward(v):
    v.gradient = 1.0
    for node in reversed(topological_order(v)):
        for p, g in zip(node.parents, node.local_grads):
            p.gradient += g * node.gradient
"""

TAPE = '''
class Value:
    """Every operation goes on one list; the pass walks that list from its end."""
    tape = []

    def __init__(self, data):
        self.data, self.grad = float(data), 0.0
        self.children, self.local_grads = (), ()

    def _made(self, data, children, local_grads):
        out = Value(data)
        out.children, out.local_grads = children, local_grads
        Value.tape.append(out)
        return out

    def __add__(self, other): return self._made(self.data + other.data, (self, other), (1.0, 1.0))
    def __mul__(self, other):
        return self._made(self.data * other.data, (self, other), (other.data, self.data))

    def backward(self):
        grads = {id(self): 1.0}
        self.grad = 1.0
        for v in reversed(Value.tape):
            g = grads.get(id(v), 0.0)
            for child, local in zip(v.children, v.local_grads):
                grads[id(child)] = grads.get(id(child), 0.0) + local * g
                child.grad += local * g
'''

DATACLASS = """
from dataclasses import dataclass, field

@dataclass(eq=False)
class Scalar:
    data: float
    grad: float = 0.0
    children: tuple = ()
    local_grads: tuple = ()

    def __add__(self, other):
        return Scalar(self.data + other.data, children=(self, other), local_grads=(1.0, 1.0))

    def __mul__(self, other):
        slopes = (other.data, self.data)
        return Scalar(self.data * other.data, children=(self, other), local_grads=slopes)

    def backward(self):
        uses, todo = {}, [self]
        while todo:
            v = todo.pop()
            for child in v.children:
                uses[id(child)] = uses.get(id(child), 0) + 1
                if uses[id(child)] == 1:
                    todo.append(child)
        self.grad, ready = 1.0, [self]
        while ready:
            v = ready.pop()
            for child, slope in zip(v.children, v.local_grads):
                child.grad += slope * v.grad
                uses[id(child)] -= 1
                if uses[id(child)] == 0:
                    ready.append(child)
"""

LAMBDAS = """
class Var:
    def __init__(self, val, edges=()):
        self.val, self.grad, self._edges = val, 0.0, edges
        self.prev = tuple(v for v, _ in edges)
    def __add__(self, o): return Var(self.val + o.val, ((self, lambda g: g), (o, lambda g: g)))
    def __mul__(self, o):
        return Var(self.val * o.val, ((self, lambda g: g * o.val), (o, lambda g: g * self.val)))
    def _backward(self):
        for v, pull in self._edges:
            v.grad += pull(self.grad)
    def backward(self):
        order, seen = [], set()
        def visit(v):
            if id(v) not in seen:
                seen.add(id(v))
                for child in v.prev:
                    visit(child)
                order.append(v)
        visit(self)
        self.grad = 1.0
        while order:
            order.pop()._backward()
"""

CAREFUL = MICROGPT.replace(
    """        self.grad = 1
        for v in reversed(topo):
            for child, local_grad in zip(v._children, v._local_grads):
                child.grad += local_grad * v.grad
""",
    """        grads = {v: 0.0 for v in topo}
        grads[self] = 1.0
        for v in reversed(topo):
            for child, local_grad in zip(v._children, v._local_grads):
                grads[child] += local_grad * grads[v]
        for v, g in grads.items():
            v.grad = g if v._children else v.grad + g
""",
)

IMPORTED = "from chainrule import Value\n"

HAND_MADE = "from chainrule.see.lessons import HandMade as Value\n"

NOISY = (
    'print("hello")\n'
    + MICROGRAD
    + """
print(Value(1.0))
if __name__ == "__main__":
    while True: pass
"""
)

RIGHT = {
    "micrograd": MICROGRAD,
    "microgpt": MICROGPT,
    "csharp": CSHARP,
    "csharp with buffers": BUFFERS,
    "typescript": TYPESCRIPT,
    "functions beside the class": FUNCTIONS,
    "one tape": TAPE,
    "counting uses": DATACLASS,
    "edges with functions": LAMBDAS,
    "sums in scratch": CAREFUL,
    "chainrule's own": IMPORTED,
    "chainrule's teaching class": HAND_MADE,
    "prints and a guarded main": NOISY,
}


def changed(source, *pairs):
    for old, new in pairs:
        assert old in source, old
        source = source.replace(old, new)
    return source


RECURSIVE = """
    def backward(self):
        self.grad = 1.0
        self._walk()

    def _walk(self):
        for child, slope in zip(self._children, self._local_grads):
            child.grad += slope * self.grad
        for child in self._children:
            child._walk()
"""

QUEUE = """
    def backward(self):
        self.grad = 1.0
        queue, seen = [self], {self}
        while queue:
            v = queue.pop(0)
            for child, slope in zip(v._children, v._local_grads):
                child.grad += slope * v.grad
                if child not in seen:
                    seen.add(child)
                    queue.append(child)
"""


def with_backward(source, backward):
    return source[: source.index("    def backward(self):")] + backward.lstrip("\n")


#: name -> (source, the trap that is the first to notice, words of the idea)
WRONG = {
    "micrograd's sixth version": (
        changed(MICROGRAD, ("grad += ", "grad = ")),
        "sharing",
        "accumulation",
    ),
    "microgpt with =": (
        changed(MICROGPT, ("child.grad += local", "child.grad = local")),
        "sharing",
        "accumulation",
    ),
    "csharp with =": (changed(CSHARP, ("].Grad += ", "].Grad = ")), "sharing", "accumulation"),
    "typescript with =": (
        changed(TYPESCRIPT, ("].grad += ", "].grad = ")),
        "sharing",
        "accumulation",
    ),
    "no visited set": (
        changed(MICROGPT, ("if v not in visited:", "if True:")),
        "sharing",
        "visited set",
    ),
    "recursion": (with_backward(MICROGPT, RECURSIVE), "sharing", "topological order"),
    "a queue": (with_backward(MICROGPT, QUEUE), "sharing", "topological order"),
    "no seed": (changed(MICROGPT, ("        self.grad = 1\n", "")), "used_once", "seed gradient"),
    "micrograd without a seed": (
        changed(MICROGRAD, ("        self.grad = 1.0\n", "")),
        "used_once",
        "seed gradient",
    ),
    "seeded with its number": (
        changed(MICROGPT, ("        self.grad = 1\n", "        self.grad = self.data\n")),
        "used_once",
        "seed gradient",
    ),
    "not reversed": (changed(MICROGPT, ("reversed(topo)", "topo")), "used_once", "reversed(topo)"),
    "csharp not reversed": (
        changed(CSHARP, ("reversed(topo)", "topo")),
        "used_once",
        "reversed(topo)",
    ),
    "listed before its children": (
        changed(
            MICROGPT,
            ("                topo.append(v)\n", ""),
            (
                "                visited.add(v)\n",
                "                visited.add(v); topo.append(v)\n",
            ),
            ("reversed(topo)", "topo"),
        ),
        "sharing",
        "after its children",
    ),
    "own factor": (
        changed(MICROGPT, ("(other.data, self.data)", "(self.data, other.data)")),
        "local_gradients",
        "local gradients of *",
    ),
    "own factor in a closure": (
        changed(
            MICROGRAD,
            ("+= other.data * out", "+= self.data * out"),
            (
                "+= self.data * out.grad\n        out._backward = _backward\n        return out\n\n    def __pow__",
                "+= other.data * out.grad\n        out._backward = _backward\n        return out\n\n    def __pow__",
            ),
        ),
        "local_gradients",
        "local gradients of *",
    ),
    "a product like a sum": (
        changed(MICROGPT, ("(other.data, self.data)", "(1, 1)")),
        "local_gradients",
        "local gradients of *",
    ),
    "a sum like a product": (
        changed(MICROGPT, ("(self, other), (1, 1)", "(self, other), (other.data, self.data)")),
        "local_gradients",
        "local gradients of +",
    ),
    "the chain left out": (
        changed(MICROGPT, ("+= local_grad * v.grad", "+= local_grad")),
        "used_once",
        "chain rule",
    ),
    "times the number": (
        changed(MICROGPT, ("+= local_grad * v.grad", "+= local_grad * v.data")),
        "used_once",
        "not by its number",
    ),
    "the first child only": (
        changed(CSHARP, ("range(len(v._inputs))", "range(1)")),
        "used_once",
        "every child",
    ),
    "subtracted": (
        changed(MICROGPT, ("child.grad += ", "child.grad -= ")),
        "used_once",
        "the sign",
    ),
    "a set of children beside local gradients": (
        changed(
            MICROGPT,
            ("self._children = children", "self._children = tuple(dict.fromkeys(children))"),
        ),
        "sharing",
        "two edges",
    ),
    "equal numbers are one": (
        changed(
            MICROGPT,
            (
                "    def backward(self):",
                "    def __eq__(self, other): return self.data == other.data\n"
                "    def __hash__(self): return hash(self.data)\n\n    def backward(self):",
            ),
        ),
        "sharing",
        "identity",
    ),
    "buffers of the class": (
        changed(
            MICROGPT,
            (
                "    __slots__ = ('data', 'grad', '_children', '_local_grads')\n",
                "    topo, visited = [], set()\n",
            ),
            (
                "        topo = []\n        visited = set()\n",
                "        topo, visited = self.topo, self.visited\n",
            ),
        ),
        "fresh_graph",
        "fresh start",
    ),
    "buffers as defaults": (
        changed(
            MICROGPT,
            (
                "    def backward(self):\n        topo = []\n        visited = set()\n",
                "    def backward(self, topo=[], visited=set()):\n",
            ),
        ),
        "fresh_graph",
        "fresh start",
    ),
    "a gradient of the class": (
        """
class Value:
    grad = [0.0]
    def __init__(self, data): self.data = data
    grad = property(lambda self: Value._g, lambda self, x: setattr(Value, "_g", x))
    _g = 0.0
    def __add__(self, o): return Value(self.data + o.data)
    def __mul__(self, o): return Value(self.data * o.data)
    def backward(self): pass
""",
        "one_number",
        "each node",
    ),
    "operands changed": (
        changed(
            MICROGPT,
            (
                "        return Value(self.data + other.data, (self, other), (1, 1))",
                "        self.data += other.data\n        return Value(self.data, (self, other), (1, 1))",
            ),
        ),
        "forward",
        "stay as they are",
    ),
    "nothing returned": (
        changed(MICROGPT, ("return Value(self.data + other", "Value(self.data + other")),
        "forward",
        "a result that is returned",
    ),
    "numbers returned": (
        changed(
            MICROGRAD,
            ("        return out\n\n    def __pow__", "        return out.data\n\n    def __pow__"),
        ),
        "forward",
        "a result that is returned",
    ),
    "a list that is not returned": (
        changed(FUNCTIONS, ("    return found\n", "")),
        "sorting",
        "a result that is returned",
    ),
    "the wrong sum": (
        changed(MICROGPT, ("Value(self.data + other.data", "Value(self.data - other.data")),
        "forward",
        "own number",
    ),
    "a list as a default": (
        changed(
            MICROGPT,
            ("children=(), local_grads=()", "children=[], local_grads=[]"),
            (
                "        return Value(self.data + other.data, (self, other), (1, 1))",
                "        out = Value(self.data + other.data)\n        out._children += [self, other]\n"
                "        out._local_grads += [1, 1]\n        return out",
            ),
        ),
        "remembers",
        "no children",
    ),
    "pow without its exponent": (
        changed(MICROGPT, ("(p * self.data ** (p - 1),)", "(self.data ** (p - 1),)")),
        "powers",
        "power",
    ),
    "tanh of the wrong thing": (
        changed(MICROGPT, ("(1 - t * t,)", "(1 - self.data ** 2,)")),
        "elementary_functions",
        "tanh",
    ),
    "relu lets everything through": (
        changed(MICROGPT, ("(float(self.data > 0),)", "(1.0,)")),
        "elementary_functions",
        "relu",
    ),
    "exp like x": (
        changed(MICROGPT, ("(math.exp(self.data),)", "(self.data,)")),
        "elementary_functions",
        "exp",
    ),
    "minus loses its sign": (
        changed(
            MICROGPT,
            (
                "def __sub__(self, other): return self + (-other)",
                "def __sub__(self, other): return self + other",
            ),
        ),
        "minus_and_division",
        "built from others",
    ),
    "gradients are numbers of None": (
        changed(MICROGPT, ("self.grad = 0\n", "self.grad = None\n")),
        "one_number",
        "clean start",
    ),
    "hangs": (
        changed(MICROGPT, ("        self.grad = 1\n", "        while True: pass\n")),
        "used_once",
        "an end",
    ),
    "dies": (
        "import os\n" + changed(MICROGPT, ("        self.grad = 1\n", "        os._exit(3)\n")),
        "used_once",
        "code that runs",
    ),
    "eats memory": (
        changed(
            MICROGPT,
            ("        self.grad = 1\n", "        heap = [bytearray(2**28) for _ in range(100)]\n"),
        ),
        "used_once",
        "",
    ),
    "raises": (
        changed(MICROGPT, ("child.grad += local_grad", "child.grad += loca_grad")),
        "used_once",
        "code that runs",
    ),
}

BROKEN_FILES = {
    "syntax": ("class Value(:\n", "SyntaxError"),
    "empty": ("", "a class: there is none in the file"),
    "no constructor": ("class Value:\n    data = grad = 0\n", "def __init__(self, data)"),
    "an indent": ("class Value:\ndef f(): pass\n", "(my_value.py, line 2)"),
    "raises when imported": ("raise ValueError('no')\n", "ValueError: no"),
    "exits when imported": ("import sys\nsys.exit(0)\n", "SystemExit"),
    "two classes": (
        "class A:\n    def backward(self): pass\nclass B:\n    def backward(self): pass\n",
        "which class is it: A, B",
    ),
}
