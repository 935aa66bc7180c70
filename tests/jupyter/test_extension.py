"""Loading and unloading, completion, inspection, and what works without loading anything."""

from tests.jupyter.conftest import Notebook

MAGIC = "%%kernel --quiet\ndef f(x: array[float]):\n    x[tid()] = 1.0"


def test_before_loading_there_is_no_magic_and_after_unloading_there_is_none_again(bare: Notebook) -> None:
    assert "not found" in bare.run(MAGIC).stream
    bare.run("%load_ext kernelab")
    assert bare.run(MAGIC).stream == ""
    bare.run("%unload_ext kernelab")
    assert "not found" in bare.run(MAGIC).stream


def test_loading_twice_offers_every_word_once_and_unloading_takes_all_away(bare: Notebook) -> None:
    count = "len(get_ipython().Completer.custom_matchers), get_ipython().kernel.do_inspect.__class__.__name__"
    before = bare.run(count).text
    bare.run("%load_ext kernelab")
    once = bare.run(count).text
    bare.run("%reload_ext kernelab")
    bare.run("import kernelab; kernelab.load_ipython_extension(get_ipython())")
    assert bare.run(count).text == once != before
    bare.run("%unload_ext kernelab")
    assert bare.run(count).text == before


def test_views_and_clean_errors_need_no_loading(fresh: Notebook) -> None:
    fresh.run("import kernelab as kl")
    fresh.run("made = kl.compile('def f(x: array[float]):\\n    x[tid()] = sin(x[tid()])')")
    assert "f_adjoint" in fresh.run("made['f']").html
    outcome = fresh.run("kl.compile('def f(x: array[float]):\\n    x[0] = wrong')")
    assert outcome.error_name == "KernelNameError"
    assert "the name wrong is not known here" in outcome.traceback
    assert "File " not in outcome.traceback


def test_a_warning_of_ours_is_one_line_and_others_stay_as_they_are(notebook: Notebook) -> None:
    ours = notebook.run("import warnings\nwarnings.warn('an array was overwritten', kl.KernelWarning)")
    assert ours.stream == "KernelWarning: an array was overwritten\n"
    other = notebook.run("warnings.warn('something else', UserWarning)")
    assert "UserWarning: something else" in other.stream
    assert ".py" in other.stream


def test_the_first_line_completes_options_and_their_values(notebook: Notebook) -> None:
    assert set(notebook.complete("%%kernel --")) == {"--show", "--quiet", "--device", "--no-backward"}
    assert set(notebook.complete("%%kernel --quiet --")) == {"--show", "--device", "--no-backward"}
    assert set(notebook.complete("%%kernel --show t")) == {"tangent"}
    assert notebook.complete("%%kernel --device ") == {"cpu": "value"}


def test_the_body_completes_the_words_of_the_language(notebook: Notebook) -> None:
    body = "%%kernel\ndef f(x: array[float]):\n    i = "
    assert notebook.complete(body + "norm")["normalize"] == "function"
    assert notebook.complete(body + "mat3")["mat33"] == "class"
    assert notebook.complete(body + "ti")["tid"] == "function"
    assert "x.shape" in notebook.complete(body + "x.sh")
    assert "normalize" not in notebook.complete("i = norm")


def test_the_body_still_completes_the_names_of_the_notebook(notebook: Notebook) -> None:
    notebook.run("gravity = 9.81")
    assert "gravity" in notebook.complete("%%kernel\ndef f(x: array[float]):\n    x[0] = grav")


def test_a_word_of_the_language_is_explained_inside_a_kernel_cell_only(notebook: Notebook) -> None:
    assert "Hyperbolic tangent" in notebook.inspect("%%kernel\ndef f(x: array[float]):\n    x[0] = tanh")
    assert notebook.inspect("tanh") == ""
    assert "Hyperbolic tangent" in notebook.inspect("kl.tanh")
