from kernelab.builtins.language_words import WORDS, said_of
from kernelab.builtins.reference import SHOWN, reference
from kernelab.frontend.meaning.name_lookup import SPECIAL, language
from kernelab.lang import ops
from kernelab.lang.types import type_named
from kernelab.runtime.host.host_words import ONLY_IN_KERNELS

PAGE = reference()


def test_every_operation_that_is_no_constructor_has_a_heading() -> None:
    proper = [name for name in ops.names() if type_named(name) is None or name in SHOWN]
    assert [name for name in proper if f"### `{name}`" not in PAGE] == []


def test_each_overload_stands_under_its_name_with_signature_and_documentation() -> None:
    dot = PAGE.split("### `dot`")[1].split("###")[0]
    assert "`dot(a: vec[n, Number], b: vec[n, Number]) -> Number`" in dot
    assert "inner product" in dot


def test_every_word_that_is_no_operation_is_told_of() -> None:
    words = [word for word in (*SPECIAL, *ONLY_IN_KERNELS, "adjoint") if not ops.overloads(word)]
    assert [word for word in words if not said_of(word) or f"### `{word}`" not in PAGE] == []


def test_nothing_is_told_of_a_word_that_the_language_does_not_have() -> None:
    assert [word for word in WORDS if word not in language()] == []


def test_the_constructors_are_shown_once_for_all_scalars() -> None:
    assert "### `vec3`" in PAGE
    assert "### `vec3d`" not in PAGE
    assert "### `mat23" not in PAGE


def test_families_are_the_titles_of_the_modules_of_records() -> None:
    titles = [line[3:] for line in PAGE.splitlines() if line.startswith("## ")]
    assert titles[:3] == ["Operators", "Conversions, constructors and components", "Scalar mathematics"]
    assert {"Vectors", "Matrices", "Random numbers and noise", "Words"} <= set(titles)
