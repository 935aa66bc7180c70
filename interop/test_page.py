"""What the page about other libraries shows does what it says, output included."""

from tests.guide.test_pages import test_the_cells_of_a_page_print_what_stands_below_them as run


def test_the_cells_of_the_page_print_what_stands_below_them() -> None:
    run("docs/interop.md")
