"""Differential equations, control, filters and games: state that is carried from step to step."""

import bisect
import math
from collections import deque, namedtuple

import numpy as np

from chainrule import cos, exp, log, maximum, minimum, sin, sqrt, tanh, where

from .registry import Field, as_lists, drifting

FIELD = Field("simulation")

# --- ordinary differential equations --------------------------------------------------------------


@FIELD.idiom
def lotka_volterra(rng):
    for p in drifting(rng, [1.1, 0.4, 0.1, 0.4], 0.01):
        yield p, [float(rng.uniform(5, 12)), float(rng.uniform(3, 6))], 0.05


def predators(p, y):
    a, b, c, d = p
    return [a * y[0] - b * y[0] * y[1], c * y[0] * y[1] - d * y[1]]


@lotka_volterra.spelling
def lotka_volterra_rk4(p, y, h):
    for _ in range(20):
        k1 = predators(p, y)
        k2 = predators(p, [yi + h / 2 * k for yi, k in zip(y, k1)])
        k3 = predators(p, [yi + h / 2 * k for yi, k in zip(y, k2)])
        k4 = predators(p, [yi + h * k for yi, k in zip(y, k3)])
        y = [yi + h / 6 * (a + 2 * b + 2 * c + d) for yi, a, b, c, d in zip(y, k1, k2, k3, k4)]
    return (y[0] - 5) ** 2 + (y[1] - 5) ** 2


@lotka_volterra.spelling
def lotka_volterra_numpy(p, y, h):
    def f(y):
        return np.array([p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]])

    y = np.array(y)
    for _ in range(20):
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        k4 = f(y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return ((y - 5) ** 2).sum()


@lotka_volterra.spelling
def lotka_volterra_euler_tuple(p, y, h):
    prey, predator = y
    for _ in range(40):
        prey, predator = (
            prey + h / 2 * (p[0] * prey - p[1] * prey * predator),
            predator + h / 2 * (p[2] * prey * predator - p[3] * predator),
        )
    return prey**2 + predator**2


@lotka_volterra.spelling
def lotka_volterra_adaptive(p, y, h):
    """Heun's method inside Euler's: the difference of the two sets the size of the next step."""
    t = 0.0
    while t < 1.0:
        k1 = predators(p, y)
        euler = [a + h * b for a, b in zip(y, k1)]
        k2 = predators(p, euler)
        heun = [a + h / 2 * (b + c) for a, b, c in zip(y, k1, k2)]
        error = max(abs(a.data - b.data) for a, b in zip(euler, heun))
        if error < 0.05:
            y, t = heun, t + h
        h = min(0.9 * h * math.sqrt(0.05 / max(error, 1e-12)), 1.0 - t, 0.2)
        if h <= 0:
            break
    return y[0] * y[1]


@lotka_volterra.spelling
def lotka_volterra_history(p, y, h):
    history = [y]
    for _ in range(20):
        now = history[-1]
        change = predators(p, now)
        history.append([now[0] + h * change[0], now[1] + h * change[1]])
    return sum((prey - 8) ** 2 for prey, _ in history) / len(history)


@FIELD.idiom
def projectile(rng):
    for p in drifting(rng, [12.0, 0.9], 0.05):
        yield p, float(rng.uniform(15, 25))


@projectile.spelling
def projectile_until_ground(p, target):
    speed, angle = p
    x, y = 0.0, 0.0
    vx, vy = speed * cos(angle), speed * sin(angle)
    while True:
        x, y = x + 0.02 * vx, y + 0.02 * vy
        drag = 0.05 * sqrt(vx * vx + vy * vy)
        vx, vy = vx - 0.02 * drag * vx, vy - 0.02 * (9.81 + drag * vy)
        if y < 0:
            break
    return (x - target) ** 2


@projectile.spelling
def projectile_bounces(p, target):
    speed, angle = p
    x, y, vx, vy, dt = 0.0, 1.0, speed * cos(angle), speed * sin(angle), 0.05
    for _ in range(80):
        vy = vy - 9.81 * dt
        x, y = x + vx * dt, y + vy * dt
        if y < 0:
            y, vy = -y, -0.8 * vy
        if x > target:
            x, vx = 2 * target - x, -0.9 * vx
    return x + y


@projectile.spelling
def projectile_where(p, target):
    x, y, vx, vy, dt = 0.0, 1.0, p[0] * cos(p[1]), p[0] * sin(p[1]), 0.05
    for _ in range(80):
        vy = vy - 9.81 * dt
        x, y = x + vx * dt, y + vy * dt
        down = y < 0
        vy = where(down, -0.8 * vy, vy)
        y = where(down, -y, y)
    return (x - target) ** 2 + y


@projectile.spelling
def projectile_closed_form(p, target):
    flight = 2 * p[0] * sin(p[1]) / 9.81
    return (p[0] * cos(p[1]) * flight - target) ** 2


Body = namedtuple("Body", "x y vx vy")


@FIELD.idiom
def collisions(rng):
    n = 4
    state = np.column_stack([rng.uniform(0, 10, size=(n, 2)), rng.normal(size=(n, 2)) * 2])
    for s in drifting(rng, state, 0.2):
        yield s, 10.0


@collisions.spelling(adapt=as_lists)
def collisions_walls(balls, size):
    balls = [list(ball) for ball in balls]
    for _ in range(20):
        for ball in balls:
            ball[0] = ball[0] + 0.1 * ball[2]
            ball[1] = ball[1] + 0.1 * ball[3]
            for axis in (0, 1):
                if ball[axis] < 0 or ball[axis] > size:
                    ball[axis + 2] = -ball[axis + 2]
    return sum((x - 5) ** 2 + (y - 5) ** 2 for x, y, _, _ in balls)


@collisions.spelling(adapt=lambda s, size: ([Body(*row) for row in s.tolist()], size))
def collisions_pairs(bodies, size):
    for _ in range(8):
        bodies = [b._replace(x=b.x + 0.1 * b.vx, y=b.y + 0.1 * b.vy) for b in bodies]
        for i in range(len(bodies)):
            for j in range(i + 1, len(bodies)):
                a, b = bodies[i], bodies[j]
                if (a.x - b.x) ** 2 + (a.y - b.y) ** 2 < 4.0:
                    bodies[i] = a._replace(vx=b.vx, vy=b.vy)
                    bodies[j] = b._replace(vx=a.vx, vy=a.vy)
    return sum(b.x * b.y for b in bodies)


@collisions.spelling(adapt=as_lists)
def collisions_gravity(bodies, size):
    for _ in range(5):
        accelerations = []
        for i, a in enumerate(bodies):
            ax = ay = 0.0
            for j, b in enumerate(bodies):
                if i == j:
                    continue
                dx, dy = b[0] - a[0], b[1] - a[1]
                r3 = (dx * dx + dy * dy + 0.1) ** 1.5
                ax, ay = ax + dx / r3, ay + dy / r3
            accelerations.append((ax, ay))
        bodies = [
            [x + 0.1 * vx, y + 0.1 * vy, vx + 0.1 * ax, vy + 0.1 * ay]
            for (x, y, vx, vy), (ax, ay) in zip(bodies, accelerations)
        ]
    return sum(b[0] ** 2 + b[1] ** 2 for b in bodies)


@collisions.spelling
def collisions_springs(state, size):
    x, v = state[:, :2], state[:, 2:]
    for _ in range(10):
        force = -x + 0.1 * (x.mean(axis=0) - x)
        v = 0.98 * v + 0.05 * force
        x = x + 0.05 * v
    return (x**2).sum()


# --- control --------------------------------------------------------------------------------------


@FIELD.idiom
def pid(rng):
    for gains in drifting(rng, [1.2, 0.4, 0.1], 0.02):
        yield gains, float(rng.uniform(0.5, 2)), (0.05 * rng.normal(size=40)).tolist()


@pid.spelling
def pid_saturation(gains, setpoint, noise):
    kp, ki, kd = gains
    y, integral, previous, cost = 0.0, 0.0, setpoint, 0.0
    for n in noise:
        error = setpoint - y - n
        integral = integral + error * 0.1
        u = kp * error + ki * integral + kd * (error - previous) / 0.1
        if u > 2.0:
            u = 2.0
        elif u < -2.0:
            u = -2.0
        previous = error
        y = y + 0.1 * (u - y)
        cost = cost + (setpoint - y) ** 2
    return cost


@pid.spelling
def pid_clip(gains, setpoint, noise):
    kp, ki, kd = gains
    y, integral, previous, cost = 0.0, 0.0, setpoint, 0.0
    for n in noise:
        error = setpoint - y - n
        integral = integral + error * 0.1
        u = kp * error + ki * integral + kd * (error - previous) / 0.1
        u = max(-2.0, min(2.0, u))
        previous = error
        y = y + 0.1 * (u - y)
        cost = cost + (setpoint - y) ** 2
    return cost


class Controller:
    """The controller as tutorials write it: gains and memory in attributes."""

    def __init__(self, kp, ki, kd, low, high):
        self.kp, self.ki, self.kd = kp, ki, kd
        self.low, self.high = low, high
        self.integral = 0.0
        self.last_error = None

    def update(self, error, dt):
        self.integral += error * dt
        derivative = 0.0 if self.last_error is None else (error - self.last_error) / dt
        self.last_error = error
        u = self.kp * error + self.ki * self.integral + self.kd * derivative
        if u > self.high:
            self.integral -= error * dt
            return self.high
        if u < self.low:
            self.integral -= error * dt
            return self.low
        return u


@pid.spelling
def pid_class_with_antiwindup(gains, setpoint, noise):
    controller = Controller(*gains, -2.0, 2.0)
    y, cost = 0.0, 0.0
    for n in noise:
        u = controller.update(setpoint - y + n, 0.1)
        y = y + 0.1 * (u - y)
        cost += abs(setpoint - y)
    return cost


@pid.spelling
def pid_delay_deque(gains, setpoint, noise):
    kp, ki, _ = gains
    line = deque([0.0] * 3, maxlen=3)
    y, integral, cost = 0.0, 0.0, 0.0
    for n in noise:
        error = setpoint - y + n
        integral = integral + 0.1 * error
        line.append(kp * error * 0.3 + ki * integral * 0.3)
        y = y + 0.1 * (line[0] - y)
        cost = cost + error**2
    return cost


@pid.spelling
def pid_thermostat(gains, setpoint, noise):
    power, loss, _ = gains
    temperature, heating, used = 0.0, False, 0.0
    for n in noise:
        if temperature < setpoint - 0.1:
            heating = True
        elif temperature > setpoint + 0.1:
            heating = False
        temperature = temperature + 0.1 * (power * heating * 3 - loss * temperature) + 0.02 * n
        used = used + (power if heating else 0.0)
    return used + (temperature - setpoint) ** 2


@pid.spelling
def pid_rate_limit(gains, setpoint, noise):
    kp, ki, kd = gains
    u, y, cost = 0.0, 0.0, 0.0
    for n in noise:
        wanted = kp * (setpoint - y) + ki * n
        u = u + maximum(minimum(wanted - u, 0.2), -0.2)
        y = y + 0.1 * (u - kd * y)
        cost = cost + (y - setpoint) ** 2
    return cost


@FIELD.idiom
def trajectory(rng):
    for controls in drifting(rng, rng.normal(size=30) * 0.1):
        yield controls, (rng.normal(size=4) * 0.2).tolist()


@trajectory.spelling
def trajectory_cart_pole(controls, state):
    x, v, angle, spin = state
    cost = 0.0
    for u in controls:
        s, c = sin(angle), cos(angle)
        force = (u * 10 + 0.05 * spin**2 * s) / 1.1
        alpha = (9.8 * s - c * force) / (0.5 * (4 / 3 - 0.1 * c**2 / 1.1))
        a = force - 0.05 * alpha * c / 1.1
        x, v = x + 0.02 * v, v + 0.02 * a
        angle, spin = angle + 0.02 * spin, spin + 0.02 * alpha
        cost = cost + angle**2 + 0.1 * x**2 + 0.001 * u**2
    return cost


@trajectory.spelling
def trajectory_double_integrator(controls, state):
    x, v = np.array(state[:2]), np.array(state[2:])
    cost = 0.0
    for k in range(0, len(controls), 2):
        u = controls[k : k + 2]
        v = v + 0.1 * u
        x = x + 0.1 * v
        cost = cost + (x @ x) + 0.01 * (u @ u)
    return cost + 10 * (x @ x)


@trajectory.spelling
def trajectory_obstacle(controls, state):
    x, y, heading, _ = state
    cost = 0.0
    for turn in controls:
        heading = heading + turn
        x, y = x + 0.1 * cos(heading), y + 0.1 * sin(heading)
        distance = sqrt((x - 1.0) ** 2 + (y - 0.2) ** 2)
        if distance < 0.5:
            cost = cost + (0.5 - distance) ** 2 * 50
    return cost + (x - 2.5) ** 2 + y**2


@FIELD.idiom
def riccati(rng):
    for p in drifting(rng, [0.1, 1.0, 0.5], 0.02):
        yield p, int(rng.integers(5, 15))


def mul(a, b):
    return [
        [sum(a[i][k] * b[k][j] for k in range(len(b))) for j in range(len(b[0]))]
        for i in range(len(a))
    ]


def transpose(a):
    return [list(column) for column in zip(*a)]


@riccati.spelling
def riccati_lists(p, horizon):
    dt, q, r = p
    A, B = [[1.0, dt], [0.0, 1.0]], [[0.0], [dt]]
    P = [[q, 0.0], [0.0, q]]
    for _ in range(horizon):
        BtP = mul(transpose(B), P)
        s = r + mul(BtP, B)[0][0]
        K = [[k / s for k in row] for row in mul(BtP, A)]
        AtP = mul(transpose(A), P)
        APA, APBK = mul(AtP, A), mul(mul(AtP, B), K)
        P = [[APA[i][j] - APBK[i][j] + (q if i == j else 0.0) for j in range(2)] for i in range(2)]
    return P[0][0] + P[1][1]


@riccati.spelling
def riccati_numpy(p, horizon):
    dt, q, r = p
    A, B = np.array([[1.0, dt], [0.0, 1.0]]), np.array([[0.0], [dt]])
    Q = q * np.eye(2)
    P = Q
    for _ in range(horizon):
        K = (B.T @ P @ A) / (r + (B.T @ P @ B)[0, 0])
        P = Q + A.T @ P @ A - A.T @ P @ B @ K
    return np.trace(P)


# --- filters --------------------------------------------------------------------------------------


@FIELD.idiom
def kalman(rng):
    for p in drifting(rng, [-1.0, -0.5], 0.03):
        yield p, np.cumsum(rng.normal(size=25)).tolist()


@kalman.spelling
def kalman_local_level(p, ys):
    q, r = exp(p[0]), exp(p[1])
    mean, var, nll = 0.0, 10.0, 0.0
    for y in ys:
        var = var + q
        s = var + r
        error = y - mean
        nll = nll + 0.5 * (log(2 * math.pi * s) + error**2 / s)
        gain = var / s
        mean = mean + gain * error
        var = (1 - gain) * var
    return nll


@kalman.spelling
def kalman_two_dimensional(p, ys):
    q, r = exp(p[0]), exp(p[1])
    x, v = 0.0, 0.0
    P = [[1.0, 0.0], [0.0, 1.0]]
    nll = 0.0
    for y in ys:
        x = x + v
        P = [
            [P[0][0] + P[0][1] + P[1][0] + P[1][1] + q, P[0][1] + P[1][1]],
            [P[1][0] + P[1][1], P[1][1] + q],
        ]
        s = P[0][0] + r
        e = y - x
        k0, k1 = P[0][0] / s, P[1][0] / s
        x, v = x + k0 * e, v + k1 * e
        P = [
            [(1 - k0) * P[0][0], (1 - k0) * P[0][1]],
            [P[1][0] - k1 * P[0][0], P[1][1] - k1 * P[0][1]],
        ]
        nll = nll + log(s) + e * e / s
    return nll / len(ys)


@kalman.spelling(adapt=lambda p, ys: (np.array(p), np.array(ys)))
def kalman_numpy(p, ys):
    F, H = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([1.0, 0.0])
    Q, r = np.eye(2) * np.exp(p[0]), np.exp(p[1])
    x, P, nll = np.zeros(2), np.eye(2), 0.0
    for y in ys:
        x, P = F @ x, F @ P @ F.T + Q
        s = H @ P @ H + r
        e = y - H @ x
        K = P @ H / s
        x, P = x + K * e, P - np.outer(K, H @ P)
        nll = nll + np.log(s) + e * e / s
    return nll


@kalman.spelling(adapt=lambda p, ys: (p, [y if i % 7 else None for i, y in enumerate(ys)]))
def kalman_missing_observations(p, ys):
    q, r = exp(p[0]), exp(p[1])
    mean, var, nll = 0.0, 10.0, 0.0
    for y in ys:
        var = var + q
        if y is None:
            continue
        s = var + r
        nll = nll + log(s) + (y - mean) ** 2 / s
        mean, var = mean + var / s * (y - mean), var * r / s
    return nll


@FIELD.idiom
def signal(rng):
    for p in drifting(rng, [0.3, 0.5, -0.2, 0.1, 0.4], 0.02):
        yield p, rng.normal(size=50).tolist()


@signal.spelling
def signal_exponential_average(p, xs):
    alpha = 1 / (1 + exp(-p[0]))
    level, error = xs[0], 0.0
    for x in xs[1:]:
        error = error + (x - level) ** 2
        level = alpha * x + (1 - alpha) * level
    return error / len(xs)


@signal.spelling
def signal_biquad(p, xs):
    b0, b1, b2, a1, a2 = p
    x1 = x2 = y1 = y2 = 0.0
    energy = 0.0
    for x in xs:
        y = b0 * x + b1 * x1 + b2 * x2 - a1 * y1 - a2 * y2
        x1, x2, y1, y2 = x, x1, y, y1
        energy = energy + y * y
    return energy


@signal.spelling
def signal_moving_average_deque(p, xs):
    window = deque(maxlen=5)
    total = 0.0
    for x in xs:
        window.append(p[0] * x)
        mean = sum(window) / len(window)
        total = total + (x * p[1] - mean) ** 2
    return total


@signal.spelling
def signal_fir_slices(taps, xs):
    n = len(taps)
    ys = [sum(t * x for t, x in zip(taps, xs[i : i + n])) for i in range(len(xs) - n + 1)]
    return sum(y * y for y in ys)


@signal.spelling
def signal_convolve(taps, xs):
    ys = np.convolve(np.array(taps), np.array(xs, dtype=object), mode="valid")
    return (ys**2).sum()


@signal.spelling
def signal_median_of_three(p, xs):
    total = 0.0
    for a, b, c in zip(xs, xs[1:], xs[2:]):
        median = sorted([a, b, c])[1]
        total = total + (p[0] * b + p[1] - median) ** 2
    return total


@signal.spelling
def signal_envelope(p, xs):
    attack, release = 1 / (1 + exp(p[0])), 1 / (1 + exp(p[1]))
    envelope, total = 0.0, 0.0
    for x in xs:
        level = abs(x)
        rate = attack if level > envelope else release
        envelope = envelope + rate * (level - envelope)
        total = total + envelope
    return total


@signal.spelling
def signal_holt_winters(p, xs):
    a, b, g = (1 / (1 + exp(-v)) for v in p[:3])
    season = [0.0] * 6
    level, trend, sse = xs[0], 0.0, 0.0
    for t, x in enumerate(xs):
        s = season[t % 6]
        sse = sse + (x - level - trend - s) ** 2
        last = level
        level = a * (x - s) + (1 - a) * (level + trend)
        trend = b * (level - last) + (1 - b) * trend
        season[t % 6] = g * (x - level) + (1 - g) * s
    return sse


# --- tables, grids --------------------------------------------------------------------------------

ALTITUDES = [0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
DENSITIES = [1.22, 1.11, 1.0, 0.82, 0.53, 0.17, 0.02]


@FIELD.idiom
def table(rng):
    for p in drifting(rng, [3.0, 0.4], 0.05):
        yield p, float(rng.uniform(0, 3))


@table.spelling
def table_bisect(p, height):
    speed = p[0]
    for _ in range(20):
        i = min(max(bisect.bisect_right(ALTITUDES, height.data if _ else height) - 1, 0), 5)
        f = (height - ALTITUDES[i]) / (ALTITUDES[i + 1] - ALTITUDES[i])
        density = DENSITIES[i] + f * (DENSITIES[i + 1] - DENSITIES[i])
        speed = speed + 0.1 * (1.0 - p[1] * density * speed * abs(speed))
        height = height + 0.2 * speed
    return height


@table.spelling
def table_linear_search(p, height):
    speed, height = p[0], height + 0 * p[0]
    for _ in range(20):
        for x0, x1, y0, y1 in zip(ALTITUDES, ALTITUDES[1:], DENSITIES, DENSITIES[1:]):
            if x0 <= height < x1:
                density = y0 + (height - x0) * (y1 - y0) / (x1 - x0)
                break
        else:
            density = DENSITIES[-1]
        speed = speed + 0.1 * (1.0 - p[1] * density * speed)
        height = height + 0.2 * speed
    return height * speed


@table.spelling
def table_searchsorted(p, height):
    speed, height = p[0], height + 0 * p[0]
    for _ in range(10):
        i = int(np.clip(np.searchsorted(ALTITUDES, height.data) - 1, 0, 5))
        slope = (DENSITIES[i + 1] - DENSITIES[i]) / (ALTITUDES[i + 1] - ALTITUDES[i])
        density = DENSITIES[i] + slope * (height - ALTITUDES[i])
        speed = speed + 0.1 * (1.0 - p[1] * density * speed)
        height = height + 0.2 * speed
    return height


@FIELD.idiom
def diffusion(rng):
    for u in drifting(rng, rng.normal(size=24)):
        yield u, float(rng.uniform(0.1, 0.4))


@diffusion.spelling
def diffusion_neighbours(u, k):
    n = len(u)
    for _ in range(10):
        u = [u[i] + k * (u[i - 1] - 2 * u[i] + u[(i + 1) % n]) for i in range(n)]
    return sum(x * x for x in u)


@diffusion.spelling
def diffusion_boundaries(u, k):
    for _ in range(10):
        new = [0.0] * len(u)
        for i in range(len(u)):
            left = u[i - 1] if i > 0 else 0.0
            right = u[i + 1] if i < len(u) - 1 else 0.0
            new[i] = u[i] + k * (left - 2 * u[i] + right)
        u = new
    return sum(x**2 for x in u)


@diffusion.spelling
def diffusion_slices(u, k):
    for _ in range(10):
        inner = u[1:-1] + k * (u[:-2] - 2 * u[1:-1] + u[2:])
        u = np.concatenate([u[:1], inner, u[-1:]])
    return (u**2).sum()


@diffusion.spelling
def diffusion_roll(u, k):
    for _ in range(10):
        u = u + k * (np.roll(u, 1) - 2 * u + np.roll(u, -1))
    return np.sum(u * u)


@FIELD.idiom
def epidemic(rng):
    for p in drifting(rng, [0.3, 0.1], 0.01):
        yield p, int(rng.integers(20, 40)), (rng.random(40) * 0.1).tolist()


@epidemic.spelling
def epidemic_days(p, days, observed):
    s, i, r = 0.99, 0.01, 0.0
    loss = 0.0
    for day in range(days):
        new, gone = p[0] * s * i, p[1] * i
        s, i, r = s - new, i + new - gone, r + gone
        loss = loss + (i - observed[day]) ** 2
    return loss


@epidemic.spelling
def epidemic_lockdown(p, days, observed):
    s, i, loss = 0.99, 0.01, 0.0
    for _day, seen in zip(range(days), observed):
        contact = p[0] * 0.5 if i > 0.08 else p[0]
        new, gone = contact * s * i, p[1] * i
        s, i = s - new, i + new - gone
        loss += (i - seen) ** 2
    return loss


@epidemic.spelling
def epidemic_intervention_day(p, days, observed):
    s, i, loss = 0.99, 0.01, 0.0
    for day in range(40):
        beta = p[0] if day < days else p[0] * tanh(p[1])
        new = beta * s * i
        s, i = s - new, i + new - p[1] * i
        loss = loss + (i - observed[day]) ** 2
    return loss
