"""Machine code that is kept in the folder CHAINRULE_CODE_CACHE: the same bits, or built again."""

import ctypes
import gc
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("llvmlite")
if os.name != "posix":
    pytest.skip("the owner of a folder is checked on POSIX only", allow_module_level=True)

import chainrule
from chainrule.compiler.codegen import jit, object_cache

THREE = "define double @f(double %x) { %y = fmul double %x, 3.0\n ret double %y }"
FOUR = THREE.replace("3.0", "4.0")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache: a folder that does not exist yet."""
    path = tmp_path / "new" / "cache"
    monkeypatch.setenv(object_cache.FOLDER, str(path))
    return path


def times(text):
    """What a module gives for 2, and whether its code came from the cache."""
    library = jit.Library(text)
    number = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(library.address("f"))(2.0)
    return number, library.is_cached


def kept(folder):
    return sorted(folder.glob("*" + object_cache.SUFFIX))


def test_the_second_time_code_comes_from_the_folder(folder):
    assert times(THREE) == (6.0, False)
    assert times(THREE) == (6.0, True)
    assert times(FOUR) == (8.0, False)
    assert len(kept(folder)) == 2
    assert folder.stat().st_mode & 0o777 == 0o700


def test_without_the_variable_nothing_is_kept(folder, monkeypatch, tmp_path):
    monkeypatch.setenv(object_cache.FOLDER, "")
    monkeypatch.chdir(tmp_path)
    assert [times(THREE), times(THREE)] == [(6.0, False), (6.0, False)]
    assert list(tmp_path.iterdir()) == []


def test_a_compiled_function_gives_the_same_bits_and_its_report_tells(folder):
    def loss(p, xs):
        return sum((p["w"] * x + p["b"]).tanh() * p["c"][i % 4] for i, x in enumerate(xs))

    params = {"w": 0.5, "b": 0.1, "c": np.array([1.0, 2.0, -1.0, 0.5])}
    xs = np.linspace(-1.0, 1.0, 40)
    found, reports = [], []
    for _ in range(2):
        fast = chainrule.compile(loss, lift=True)
        value, slopes = fast.value_and_grad(params, xs)
        found.append((value, slopes["w"], slopes["b"], slopes["c"].tobytes()))
        reports.append(fast.report())
        del fast
        gc.collect()
    assert found[0] == found[1]
    assert "from the cache" not in reports[0]
    assert "1 of 1 modules from the cache" in reports[1]


@pytest.mark.parametrize("bits", ["128", "256"])
def test_code_for_another_processor_is_other_code(folder, monkeypatch, bits):
    times(THREE)
    monkeypatch.setenv(jit.VECTOR_BITS, bits)
    _, llvm = jit.vector_width(), jit._binding()
    if jit._processor(llvm) == (llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()):
        pytest.skip("this is that processor")
    assert times(THREE) == (6.0, False)
    assert times(THREE) == (6.0, True)


@pytest.mark.parametrize("how", ["how LLVM is used", "llvmlite"])
def test_code_of_another_version_is_other_code(folder, monkeypatch, how):
    times(THREE)
    if how == "llvmlite":
        monkeypatch.setattr("llvmlite.__version__", "0.0.0")
    else:
        monkeypatch.setattr(jit, "PASSES", ("sroa",))
    assert times(THREE) == (6.0, False)


def damages(content, other):
    yield b""
    yield content[:-1]
    yield content[:50]
    yield content[:200] + bytes([content[200] ^ 1]) + content[201:]
    yield b"x" + content[1:]
    yield other  # whole, and that of another module


def test_damaged_files_are_replaced_with_one_warning(folder):
    times(FOUR)
    (path,) = kept(folder)
    other = path.read_bytes()
    path.unlink()
    times(THREE)
    (path,) = kept(folder)
    content = path.read_bytes()
    for number, damaged in enumerate(damages(content, other)):
        path.write_bytes(damaged)
        if number:  # it was said
            assert times(THREE) == (6.0, False)
        else:
            with pytest.warns(UserWarning, match=r"built again: [0-9a-f]{8}… is damaged"):
                assert times(THREE) == (6.0, False)
        assert path.read_bytes() == content
        assert times(THREE) == (6.0, True)


def test_a_folder_that_others_can_open_is_not_used(folder):
    times(FOUR)
    (path,) = kept(folder)
    path.rename(folder / "planted")
    folder.chmod(0o755)
    with pytest.warns(UserWarning, match="is not used: other users can open it: chmod 700"):
        assert times(FOUR) == (8.0, False)
    (folder / "planted").rename(path)
    assert times(FOUR) == (8.0, False)  # although the file is right
    folder.chmod(0o700)
    assert times(FOUR) == (8.0, True)


def test_a_folder_of_another_user_is_not_used(folder, monkeypatch):
    times(THREE)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.warns(UserWarning, match="is not used: it belongs to another user"):
        assert times(THREE) == (6.0, False)


def test_links_are_not_followed(folder, tmp_path):
    times(THREE)
    (path,) = kept(folder)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="built again: "), pytest.warns(match="is not kept in"):
        assert times(THREE) == (6.0, False)
    os.rename(folder, tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    with pytest.warns(UserWarning, match="is not used: "), pytest.warns(match="is not kept in"):
        assert times(FOUR) == (8.0, False)


def test_where_there_can_be_no_folder_code_is_built(folder):
    folder.parent.write_text("a file")
    not_used, not_kept = "is not used: Not a directory", "is not kept in .*: "
    with pytest.warns(UserWarning, match=not_used), pytest.warns(match=not_kept):
        assert times(THREE) == (6.0, False)
    assert times(THREE) == (6.0, False)


def test_the_least_recently_used_goes_and_other_files_stay(folder, monkeypatch):
    texts = [THREE.replace("3.0", f"{k}.0") for k in (3, 5, 6, 7)]
    names = []
    for text in texts[:3]:
        times(text)
        names += [path for path in kept(folder) if path not in names]
    for age, path in enumerate(reversed(names)):
        os.utime(path, (1e9 - age, 1e9 - age))
    assert times(texts[0]) == (6.0, True)  # the oldest, and now the youngest
    other, partial = folder / "notes.txt", folder / f".{names[0].name}.00.partial"
    for path in (other, partial):
        path.write_text("x")
        os.utime(path, (1e9, 1e9))
    size = names[0].stat().st_size
    monkeypatch.setattr(object_cache, "MOST_BYTES", 3 * size + 10)
    times(texts[3])
    assert [path.exists() for path in names] == [True, False, True]
    assert other.exists()
    assert not partial.exists()  # whoever wrote it was killed long ago
    monkeypatch.setattr(object_cache, "MOST_BYTES", size - 1)
    times(FOUR)
    assert len(kept(folder)) == 3  # too large by itself: nothing had to go


SCRIPT = """
import numpy as np
import chainrule
fast = chainrule.compile(lambda p, xs: sum((p * x).tanh() for x in xs), lift=True)
print(fast.value_and_grad(0.5, np.linspace(-1.0, 2.0, 300)))
"""


def test_several_processes_share_a_folder(folder):
    environment = {**os.environ, "PYTHONWARNINGS": "error"}
    running = [
        subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, env=environment)
        for _ in range(3)
    ]
    found = {process.communicate(timeout=300)[0] for process in running}
    assert {process.returncode for process in running} == {0}
    assert len(found) == 1
    assert len(kept(folder)) == len(list(folder.iterdir())) == 1
