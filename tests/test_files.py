"""Files are replaced whole, never through a link, and a folder has one writer at a time."""

import ast
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import chainrule
from chainrule import Value, draw, explore, files, gpt
from chainrule.cli import app
from chainrule.files import FolderLock, append_to, write_atomically

PACKAGE = Path(chainrule.__file__).parent


@pytest.fixture
def victim(tmp_path):
    """A file that somebody wants us to overwrite."""
    path = tmp_path / "victim"
    path.write_text("precious")
    return path


def test_text_and_bytes_replace_what_was_there(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, "zoë\n")
    assert path.read_bytes() == "zoë\n".encode()
    write_atomically(str(path), b"\0\xff\r\n")
    assert path.read_bytes() == b"\0\xff\r\n"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_neither_followed_nor_replaced(tmp_path, victim):
    link = tmp_path / "link.svg"
    for target in (victim, tmp_path / "nowhere"):
        link.symlink_to(target)
        with pytest.raises(OSError, match="symbolic links are not written through"):
            write_atomically(link, "ours")
        with pytest.raises(OSError, match=r"link\.svg"):
            append_to(link)
        assert link.readlink() == target
        link.unlink()
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_link_planted_under_the_temporary_name_is_not_followed(tmp_path, victim, monkeypatch):
    monkeypatch.setattr(files.secrets, "token_hex", lambda count: "guessed")
    planted = tmp_path / ".picture.svg.guessed.partial"
    planted.symlink_to(victim)
    with pytest.raises(FileExistsError) as caught:
        write_atomically(tmp_path / "picture.svg", "ours")
    assert caught.value.filename == str(tmp_path / "picture.svg")
    assert victim.read_text() == "precious"
    assert planted.is_symlink(), "what is not ours is not deleted"


def test_temporary_names_cannot_be_guessed(tmp_path, monkeypatch):
    names = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b: (names.append(Path(a).name), replace(a, b)))
    for _ in range(20):
        write_atomically(tmp_path / "x", "")
    assert len(set(names)) == 20
    assert all(len(name) > 20 for name in names)


def test_a_folder_is_not_replaced(tmp_path):
    with pytest.raises(IsADirectoryError):
        write_atomically(tmp_path, "ours")


def test_a_device_stays_one():
    before = os.stat("/dev/null")
    write_atomically("/dev/null", "ours")
    after = os.stat("/dev/null")
    assert stat.S_ISCHR(after.st_mode)
    assert (after.st_ino, after.st_rdev) == (before.st_ino, before.st_rdev)


def test_a_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_atomically(pipe, "through the pipe")
    reader.join()
    assert read == ["through the pipe"]
    assert pipe.is_fifo()


def test_standard_output_is_a_file_too():
    code = "from chainrule.files import write_atomically; write_atomically('/dev/stdout', 'hello')"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).stdout == b"hello"


def test_permissions_are_those_of_the_old_file_or_of_any_new_one(tmp_path):
    path = tmp_path / "file"
    before = os.umask(0o027)
    try:
        write_atomically(path, "new")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        write_atomically(path, "again")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_a_file_that_may_not_be_written_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("kept")
    monkeypatch.setattr(os, "access", lambda *arguments: False)  # root may write everything
    with pytest.raises(PermissionError):
        write_atomically(path, "ours")
    assert path.read_text() == "kept"


def test_a_long_name_is_no_problem(tmp_path):
    path = tmp_path / ("x" * 250)
    write_atomically(path, "ours")
    assert path.read_text() == "ours"


# --- everything is written this way ---------------------------------------------------------------


#: this module, and notes between two processes in a temporary folder of their own
ALLOWED = {"files.py", "see/lessons/worker.py", "see/lessons/examining.py"}


def test_nothing_else_in_the_package_writes_files():
    writing = {"write_text", "write_bytes", "replace", "rename", "mkstemp", "NamedTemporaryFile"}
    found = []
    for path in PACKAGE.rglob("*.py"):
        if str(path.relative_to(PACKAGE)) in ALLOWED:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            function = node.func
            name = getattr(function, "attr", getattr(function, "id", ""))
            owner = getattr(getattr(function, "value", None), "id", "")
            modes = [a.value for a in node.args if isinstance(a, ast.Constant)]
            opens = name == "open" and any(
                isinstance(m, str) and len(m) < 4 and set(m) & set("wax+") for m in modes
            )
            if opens or (name in writing and (name not in ("replace", "rename") or owner == "os")):
                found.append(f"{path.name}:{node.lineno}: {name}")
    assert found == []


@pytest.fixture
def graph():
    a = Value(2.0, label="a")
    return a * a + 1.0


@pytest.mark.parametrize("name", ["g.svg", "g.png", "g.dot", "g.mmd", "g.html"])
def test_pictures_and_pages_are_not_written_through_links(tmp_path, victim, graph, name):
    (tmp_path / name).symlink_to(victim)
    made = explore(graph) if name == "g.html" else draw(graph)
    with pytest.raises(OSError, match="symbolic links are not written through"):
        made.save(tmp_path / name)
    assert victim.read_text() == "precious"


@pytest.mark.parametrize(
    "arguments",
    [
        ["draw", "a*a", "a=2", "-o", "out.svg"],
        ["explore", "a*a", "a=2", "-o", "out.html"],
        ["explain", "a*a", "a=2", "-o", "out.html"],
        ["compare", "one", "two", "--output", "out.svg"],
    ],
)
def test_commands_refuse_a_link_in_one_line(tmp_path, victim, monkeypatch, capsys, arguments):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        run = gpt.Run.start(["ab", "ba"], gpt.Config(width=2, heads=1, block=2, steps=1))
        gpt.train(run, name)
    Path(arguments[-1]).symlink_to(victim)
    with pytest.raises(SystemExit) as exit_:
        app(arguments)
    assert exit_.value.code == 1
    expected = f"chainrule: symbolic links are not written through: {arguments[-1]}\n"
    assert capsys.readouterr().err == expected
    assert victim.read_text() == "precious"


def test_a_page_can_go_nowhere(capsys):
    with pytest.raises(SystemExit) as exit_:
        app(["explain", "a*a", "a=2", "-o", "/dev/null"])
    assert exit_.value.code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


# --- one writer at a time -------------------------------------------------------------------------

HOLD = """
import sys, time
from chainrule.files import FolderLock
with FolderLock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has locked the folder ``run``."""
    (tmp_path / "run").mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "run")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_locked_folder_says_who_holds_it(tmp_path, holder):
    with pytest.raises(BlockingIOError, match=f"in use by process {holder.pid}"):
        FolderLock(tmp_path / "run")
    holder.communicate()
    with FolderLock(tmp_path / "run"):
        assert (tmp_path / "run" / files.LOCK).exists()
    assert list((tmp_path / "run").iterdir()) == []


def test_a_killed_holder_holds_nothing(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with FolderLock(tmp_path / "run"):
        pass


def test_a_holder_elsewhere_is_named_with_its_host(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(files.socket, "gethostname", lambda: "elsewhere")
        lock = FolderLock(tmp_path)
    with lock, pytest.raises(BlockingIOError, match=r"in use by process \d+ on elsewhere"):
        FolderLock(tmp_path)


def test_a_planted_lock_is_not_followed(tmp_path, victim):
    (tmp_path / files.LOCK).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        FolderLock(tmp_path)
    assert victim.read_text() == "precious"


def test_only_one_of_many_gets_in_at_any_moment(tmp_path):
    inside, most, entered = 0, 0, 0

    def visit():
        nonlocal inside, most, entered
        for _ in range(200):
            try:
                lock = FolderLock(tmp_path)
            except BlockingIOError:
                continue
            inside += 1
            most = max(most, inside)
            entered += 1
            inside -= 1
            lock.release()

    threads = [threading.Thread(target=visit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1
    assert entered > 0


@pytest.mark.parametrize("option", ["--output", "--resume"])
def test_a_second_training_in_one_folder_is_refused(tmp_path, monkeypatch, capsys, option):
    monkeypatch.chdir(tmp_path)
    run = gpt.Run.start(["ab", "ba"], gpt.Config(width=2, heads=1, block=2, steps=9))
    gpt.train(run, "run", stop=lambda: run.step >= 2)
    before = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    with FolderLock("run"):
        with pytest.raises(SystemExit) as exit_:
            app(["train", option, "run"])
        assert exit_.value.code == 1
        assert capsys.readouterr().err == "chainrule: in use by this process: run\n"
        with pytest.raises(BlockingIOError):
            gpt.train(run, "run")
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == before


def test_what_a_killed_run_left_half_written_goes(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".checkpoint.safetensors.0123.partial").write_bytes(b"half")
    run = gpt.Run.start(["ab", "ba"], gpt.Config(width=2, heads=1, block=2, steps=1))
    gpt.train(run, folder)
    assert sorted(path.name for path in folder.iterdir()) == [
        *("checkpoint.safetensors", "loss.svg", "metrics.csv")
    ]
