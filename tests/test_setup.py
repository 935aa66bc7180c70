"""Set-up: pyproject, `kernelab doctor`, the script behind make, Binder, and what conftest promises."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kernelab
from kernelab import doctor
from kernelab.teach.lessons import lessons
from scripts.dist import publish

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SETUP = ROOT / "scripts" / "setup.sh"
BASH = shutil.which("bash") or "/bin/bash"


def run(command: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``command`` in the checkout, with nothing in its environment but ``environment``."""
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


# ------------------------------------------------------------------------------------------ pyproject


def package_name(requirement: str) -> str:
    return re.split(r"[\[<>=!~; ]", requirement)[0].lower()


def imported_packages() -> Iterator[str]:
    for path in (ROOT / "kernelab").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import():
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                case ast.ImportFrom(level=0, module=str(name)):
                    yield name.partition(".")[0]


def test_the_version_is_the_packages_own_and_has_an_entry_in_the_changelog() -> None:
    assert PROJECT["version"] == kernelab.__version__
    assert f"\nversion: {kernelab.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert kernelab.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_an_extra_brings_every_package_that_kernelab_imports() -> None:
    declared = {package_name(line) for line in (*PROJECT["dependencies"], *lines_of("all"))}
    comes_with_ipywidgets = {"traitlets", "comm"}
    # typing_extensions is for type checkers, which bring it; who converts to PyTorch or JAX has them.
    optional = {"cuda", "jax", "torch", "typing_extensions"}
    ours = {"kernelab"} | sys.stdlib_module_names
    used = {name.lower() for name in imported_packages() if name not in ours}
    assert used <= declared | comes_with_ipywidgets | optional


def lines_of(extra: str) -> Iterator[str]:
    """The requirements of an extra, and of those that it names."""
    for line in PROJECT["optional-dependencies"][extra]:
        inner = re.fullmatch(r"kernelab\[(.*)\]", line)
        if inner is None:
            yield line
        else:
            for name in inner[1].split(","):
                yield from lines_of(name)


def test_plain_pip_install_brings_numpy_alone() -> None:
    assert {package_name(line) for line in PROJECT["dependencies"]} == {"numpy"}


def test_all_brings_what_the_extras_of_its_parts_bring() -> None:
    parts = ("jupyter", "bfloat16", "sparse", "dask", "cuda")
    assert set(lines_of("all")) == {line for name in parts for line in lines_of(name)}


def test_the_wheel_holds_the_whole_package_and_nothing_else(tmp_path: Path) -> None:
    build = run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)], PATH="")
    assert build.returncode == 0, build.stderr
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    extension = {name for name in packed if "/share/jupyter/labextensions/kernelab/" in name}
    built = [path for path in (ROOT / "extension" / "labextension").rglob("*") if path.is_file()]
    assert {Path(name).name for name in extension} == {path.name for path in built}
    files = [
        path for path in (ROOT / "kernelab").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    ]
    course = {f"kernelab/course/{path.name}" for path in (ROOT / "notebooks" / "course").glob("*.ipynb")}
    assert packed - extension == {path.relative_to(ROOT).as_posix() for path in files} | course


# ------------------------------------------------------------------------------------------ doctor


def test_doctor_finds_everything_that_kernels_on_the_cpu_need() -> None:
    report = run([sys.executable, "-m", "kernelab", "doctor"], **os.environ)
    assert report.returncode == 0, report.stdout + report.stderr
    assert re.search(r"^ok  C\+\+ compiler .*what it builds loads and runs$", report.stdout, re.MULTILINE)


def test_doctor_reports_on_every_part() -> None:
    subjects = [finding.subject for finding in doctor.examine()]
    assert subjects == [
        *(
            "Python",
            "kernelab",
            "NumPy",
            "C++ compiler",
            "cache",
            "notebooks",
            "live tapes",
            "anywidget",
            "plots",
            "sparse matrices",
        ),
        *("bfloat16", "JupyterLab", "front-end", "cuda-python", "NVRTC", "NVIDIA driver"),
    ]


def test_doctor_fails_and_says_what_to_type_where_there_is_no_compiler() -> None:
    report = run([sys.executable, "-m", "kernelab", "doctor"], PATH="", HOME=os.environ.get("HOME", "/"))
    assert report.returncode == 1
    assert "!!  C++ compiler" in report.stdout
    assert "sudo apt-get install g++" in report.stdout


@pytest.mark.parametrize("compiler", ["/nowhere/g++", "false", "true"])
def test_doctor_names_a_compiler_that_does_not_work(compiler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELAB_CXX", compiler)
    finding = doctor.examine_compiler()
    assert finding.mark is doctor.Mark.BROKEN
    assert compiler in finding.found
    assert "KERNELAB_CXX" in finding.advice


def test_doctor_counts_what_the_cache_holds(tmp_path: Path) -> None:
    (tmp_path / "entry.so").write_bytes(bytes(2_000_000))
    finding = doctor.examine_cache(tmp_path)
    assert finding == doctor.Finding(doctor.Mark.OK, "cache", f"{tmp_path}: 1 libraries, 2.0 MB")


def test_doctor_says_where_else_the_cache_could_be_when_it_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    finding = doctor.examine_cache(tmp_path / "file" / "cache")
    assert finding.mark is doctor.Mark.OPTIONAL
    assert "KERNELAB_CACHE_DIR" in finding.advice


def test_doctor_says_how_to_install_a_missing_package() -> None:
    finding = doctor.examine_package("Thing", "no-such-package-of-kernelab", "pip install thing")
    assert finding == doctor.Finding(doctor.Mark.OPTIONAL, "Thing", "not installed", "pip install thing")


def test_doctor_says_whether_the_live_tape_was_built(tmp_path: Path) -> None:
    missing = doctor.examine_front_end(tmp_path / "tape.js")
    assert missing.mark is doctor.Mark.OPTIONAL
    assert "static" in missing.found
    (tmp_path / "tape.js").write_bytes(bytes(72_000))
    found = doctor.Finding(doctor.Mark.OK, "front-end", "built, 72 kB")
    assert doctor.examine_front_end(tmp_path / "tape.js") == found


class _Driver:
    """As much of NVIDIA's driver as the doctor asks: one GPU, CUDA 12.4."""

    cuInit = staticmethod(lambda flags: 0)  # noqa: N815 (the driver's name)

    def cuDriverGetVersion(self, version: Any) -> None:  # noqa: N802 (the driver's name)
        version._obj.value = 12040

    def cuDeviceGetCount(self, count: Any) -> None:  # noqa: N802 (the driver's name)
        count._obj.value = 1

    def cuDeviceGetName(self, name: Any, size: int, index: int) -> None:  # noqa: N802 (the driver's name)
        name.value = b"A GPU"


def test_doctor_names_the_gpus_that_kernels_can_run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_load", lambda library: _Driver())
    assert doctor.examine_driver() == doctor.Finding(doctor.Mark.OK, "NVIDIA driver", "CUDA 12.4: A GPU")


@pytest.mark.nvrtc
def test_doctor_compiles_cuda_text_without_a_gpu() -> None:
    assert re.fullmatch(r"[\d.]+: compiles CUDA text", doctor.examine_nvrtc().found)


# ------------------------------------------------------------------------------------------ scripts/setup.sh


@pytest.fixture
def bare_machine(tmp_path: Path) -> Path:
    """A path with the few programs that the set-up script is written in, and no apt-get."""
    for program in ("dirname", "id"):
        found = shutil.which(program)
        assert found is not None
        (tmp_path / program).symlink_to(found)
    return tmp_path


def test_set_up_without_a_compiler_names_the_line_to_type_and_goes_on(bare_machine: Path) -> None:
    result = run([BASH, str(SETUP), "compiler"], PATH=str(bare_machine))
    assert "Type: sudo apt-get install g++" in result.stderr
    assert result.returncode == 0


@pytest.mark.parametrize(
    ("program", "typed"),
    [("dnf", "sudo dnf install gcc-c++"), ("apk", "sudo apk add g++"), ("brew", "brew install gcc")],
)
def test_set_up_names_the_package_manager_that_is_there(program: str, typed: str, bare_machine: Path) -> None:
    (bare_machine / program).touch(0o700)
    result = run([BASH, str(SETUP), "compiler"], PATH=str(bare_machine))
    assert f"Type: {typed}\n" in result.stderr


@pytest.mark.long
def test_set_up_adds_pip_to_an_environment_without_it_and_keeps_what_is_there(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    kept = tmp_path / "venv" / "kept"
    kept.touch()
    text = f'set -- compiler; . "{SETUP}"; environment_works || complete_environment'
    result = run([BASH, "-c", text], **os.environ | {"VENV": str(tmp_path / "venv")})
    assert result.returncode == 0, result.stderr
    pip = run([str(tmp_path / "venv" / "bin" / "python"), "-m", "pip", "--version"])
    assert (pip.returncode, kept.exists()) == (0, True)


def test_set_up_stops_where_a_compiler_is_required(bare_machine: Path) -> None:
    result = run([BASH, str(SETUP), "compiler", "required"], PATH=str(bare_machine))
    assert "Type: sudo apt-get install g++" in result.stderr
    assert result.returncode == 1


def test_set_up_names_the_python_it_needs(bare_machine: Path) -> None:
    old = bare_machine / "python3"
    old.write_text(f'#!{BASH}\n[ "$1" = --version ] && echo Python 3.9.2 && exit\nexit 1\n')
    old.chmod(0o755)
    result = run(
        [BASH, str(SETUP), "environment", "lab"], PATH=str(bare_machine), VENV=str(bare_machine / "venv")
    )
    assert "needs Python 3.11 or newer; Python 3.9.2 is older" in result.stderr
    assert result.returncode == 1


# ------------------------------------------------------------------------------------------ Binder


def binder_text(name: str) -> str:
    return (ROOT / "binder" / name).read_text(encoding="utf-8").strip()


def test_binder_installs_what_the_lab_extra_names() -> None:
    ours, *others = PROJECT["optional-dependencies"]["lab"]
    assert binder_text("requirements.txt").splitlines() == others
    assert f"'.{ours.removeprefix('kernelab')}'" in binder_text("postBuild")


def test_binder_has_a_compiler_and_a_python_that_kernelab_accepts() -> None:
    assert binder_text("apt.txt") == "g++"
    assert PROJECT["requires-python"] == binder_text("runtime.txt").replace("python-", ">=")


def test_binder_opens_the_first_lesson() -> None:
    url = json.loads(binder_text("jupyter_lab_config.json"))["LabApp"]["default_url"]
    assert ROOT / url.removeprefix("/lab/tree/") == lessons()[1]


@pytest.mark.parametrize(
    ("url", "has_colab"), [("https://github.com/us/k", True), ("https://host/us/k", False)]
)
def test_the_address_of_the_repository_makes_the_links_of_the_readme_work(
    tmp_path: Path, url: str, has_colab: bool
) -> None:
    readme = Path(shutil.copy(ROOT / "README.md", tmp_path))
    publish(readme, url)
    text = readme.read_text(encoding="utf-8")
    assert "OWNER" not in text and "no public address" not in text
    assert f"[The gradient contract]({url}/blob/HEAD/docs/gradient-contract.md)" in text
    colab = "[colab]: https://colab.research.google.com/github/us/k/blob/HEAD/notebooks/course/01-"
    assert (colab in text, "Colab" in text) == (has_colab, has_colab)


def test_binders_last_step_can_be_executed_and_is_bash() -> None:
    script = ROOT / "binder" / "postBuild"
    assert os.access(script, os.X_OK)
    assert run([BASH, "-n", str(script)]).returncode == 0


# ------------------------------------------------------------------------------------------ conftest


def run_inner(folder: Path, text: str, *arguments: str, **environment: str) -> str:
    """The summary of a pytest session of its own, under this conftest, over one test file of ``text``."""
    test = folder / "test_inner.py"
    test.write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
    ]
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environment}
    return run([*command, "-rA", f"--rootdir={folder}", *arguments, str(test)], **environment).stdout


USES_BROWSER = "def test_page(browser): pass"


@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_a_missing_browser_is_said_aloud_and_fails_in_continuous_integration(
    tmp_path: Path, ci: str, outcome: str
) -> None:
    summary = run_inner(tmp_path, USES_BROWSER, CI=ci, PATH="", PLAYWRIGHT_BROWSERS_PATH=str(tmp_path))
    assert outcome in summary
    assert "NOT RUN: no Chromium. Type: sudo apt-get install chromium" in summary


USES_GOLDEN = """
import tests.conftest, pathlib
tests.conftest.GOLDEN = pathlib.Path(__file__).parent
def test_new(golden): golden("new", "one")
def test_changed(golden): golden("changed", "one\\ntwo")
"""


def test_golden_shows_what_changed_and_names_the_command_that_writes_it(tmp_path: Path) -> None:
    changed = tmp_path / "changed.txt"
    changed.write_text("one\nthree\n")
    summary = run_inner(tmp_path, USES_GOLDEN)
    assert "new.txt yet; to write it: pytest" in summary
    assert "-three\n+two\n" in summary
    assert "2 passed" in run_inner(tmp_path, USES_GOLDEN, "--update-golden")
    assert changed.read_text() == "one\ntwo\n"


def test_doctor_refuses_a_numpy_whose_integers_are_others() -> None:
    assert doctor.examine_numpy("1.26.4").mark is doctor.Mark.BROKEN
    assert doctor.examine_numpy("2.0.1").mark is doctor.Mark.OK
