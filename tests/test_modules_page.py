from tests.support.modules import FOLDERS, PACKAGE, modules, page


def test_the_map_has_every_folder() -> None:
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    assert folders == set(FOLDERS)


def test_every_module_says_what_it_knows() -> None:
    said = page()
    assert [path for folder in FOLDERS for path in modules(folder) if f"| `{path.stem}` |  |" in said] == []
