"""Calls of entries from C++: one for packed arguments, and one for a whole launch of usual arguments.

Python takes longer to look at the arguments of a small launch than the launch itself takes.  This text looks
at them instead; it returns False, before anything has happened, wherever there is more to do than to check,
pack, count the writes and run, and then Python does all of it.  It declares what it uses of Python's stable
ABI, since users have no headers of Python.  Knows C++ and ctypes; the names of attributes are all that it
knows of arrays and memory.
"""

import ctypes
import sys
import sysconfig
from collections.abc import Callable, Sequence
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple

from kernelab.backend.common.build_cache import Cache, key_of
from kernelab.backend.common.compiler import Compiler
from kernelab.codegen.cpp.entry import Line, Unit

GIVEN_UP = -1
"""What vector code returns where scalar code has to go on, behind the threads that status[DONE] counts."""

MOST_SLOTS = 128
"""With more slots than that Python packs the arguments."""

_FACTS = ("ENTRY", "FEWEST", "VECTORS", "MOST", "COUNT", "RANK", "TOTALS", "PARAMETERS")
"""The facts of a launch, in words of eight bytes: the four of `Code`, the number of arguments, that of thread
indices, whether sums reach memory late.  Behind them are three words for each parameter: its kind, and the
least and the greatest integer."""

ARRAY, INTEGER, FLOAT32, FLOAT64 = 0, 1, 2, 4
"""The kinds of parameters.  The two words of an array say whether it is written, and whether it is read; the
kind of an integer has its size in bytes in the bits from the fourth on."""


class Code(NamedTuple):
    """The addresses of scalar and vector code, and the numbers of threads from which they do not run.

    From `fewest` threads on vector code runs, and from `most` on Python.
    """

    entry: int
    fewest: int
    vectors: int
    most: int


Ended = Callable[[Any, bytes, bool], bool]
"""What goes on where code has returned something else than 0, with its block, the arguments, and whether
vector code has given up."""


class Launched(NamedTuple):
    """What the function of a launch holds, and looks at beside its arguments.

    A launch is left to Python unless `settings` returns `quiet`, `logs` of `debug` False, and `constants`, if
    any, are unchanged, and while `entered` or `open` hold anything.  While `recorder` returns something, the
    packed arguments are all that it is asked for.  `caller` returns the line that has called, `types` are
    those of the arrays, by parameter.
    """

    facts: bytes
    blocks: list[Any]
    ended: Ended
    types: tuple[object, ...]
    made_by: object
    arrays: type
    settings: Callable[[], object]
    quiet: object
    logs: Callable[[int], bool]
    debug: int
    entered: list[Any]
    open: dict[Any, Any]
    constants: object
    recorder: Callable[[], object]
    caller: Callable[[], object]


TEXT = r"""
using Object = struct Opaque;
using Size = decltype(sizeof 0);
using Length = long;
using Function = Object* (*)(Object*, Object* const*, Length);
struct Definition { const char* name; Function function; int flags; const char* documentation; };
extern "C" {
extern char PyBytes_Type[], PyFloat_Type[], PyList_Type[], PyLong_Type[], PyTuple_Type[];
extern char _Py_FalseStruct[], _Py_NoneStruct[], _Py_TrueStruct[];
Object *PyCFunction_NewEx(Definition*, Object*, Object*), *PyWeakref_NewRef(Object*, Object*);
Object *PyObject_Type(Object*), *PyObject_GenericGetAttr(Object*, Object*);
Object *PyObject_CallFunctionObjArgs(Object*, ...), *PyErr_Occurred();
Object *PyTuple_GetItem(Object*, Length), *PyTuple_New(Length), *PyList_GetItem(Object*, Length);
Object *PyList_New(Length), *PyBytes_FromStringAndSize(const char*, Length);
Object *PyLong_FromLongLong(long long), *PyLong_FromUnsignedLong(unsigned long);
Object *PyUnicode_InternFromString(const char*);
Length PyBytes_Size(Object*), PyDict_Size(Object*), PyList_Size(Object*), PyTuple_Size(Object*);
int PyObject_GenericSetAttr(Object*, Object*, Object*), PyTuple_SetItem(Object*, Length, Object*);
int PyList_Append(Object*, Object*), PyList_SetSlice(Object*, Length, Length, Object*);
long long PyLong_AsLongLong(Object*);
double PyFloat_AsDouble(Object*);
char* PyBytes_AsString(Object*);
unsigned long PyThread_get_thread_ident();
void *PyEval_SaveThread(), *memcpy(void*, const void*, Size);
void PyEval_RestoreThread(void*), PyErr_Clear(), Py_IncRef(Object*), Py_DecRef(Object*);
}
using Word = long long;

static Object* const True = (Object*)_Py_TrueStruct;
static Object* const False = (Object*)_Py_FalseStruct;
static Object* const None = (Object*)_Py_NoneStruct;
#define NAMES(EACH) EACH(address) EACH(adjoint) EACH(allocation) EACH(folded) EACH(origin) EACH(packed) \
    EACH(requires_grad) EACH(starts) EACH(type) EACH(unchanged) EACH(version) EACH(watches) EACH(witnesses) \
    EACH(writable)
#define DECLARE(name) static Object* name;
NAMES(DECLARE)

static Object* taken(Object* one) { Py_IncRef(one); return one; }

static bool is_a(Object* one, void* kind) {
    Object* own = PyObject_Type(one);
    Py_DecRef(own);
    return own == kind;
}

/* An attribute, which the object keeps alive: a slot of it, or in its dictionary. */
static Object* of(Object* one, Object* name) {
    Object* value = PyObject_GenericGetAttr(one, name);
    if (value) Py_DecRef(value);
    return value;
}

static bool is_true(Object* one, Object* name) { return of(one, name) == True; }

/* Run code on packed arguments with a block of `blocks`; False if there is none, null after an error. */
static Object* run(
    const Word* facts, Word threads, Object* blocks, Object* ended, const Word* slots, Length count) {
    Length last = PyList_Size(blocks) - 1;
    if (last < 0) return taken(False);
    Object* block = taken(PyList_GetItem(blocks, last));
    if (PyList_SetSlice(blocks, last, last + 1, nullptr)) { Py_DecRef(block); return nullptr; }
    Word* status = (Word*)PyLong_AsLongLong(of(block, address));
    bool is_large = threads >= facts[FEWEST];
    void* thread = PyEval_SaveThread();
    int code = ((int (*)(const Word*, void*))facts[is_large ? VECTORS : ENTRY])(slots, status);
    PyEval_RestoreThread(thread);
    Object* result = taken(True);
    if (!code) {
        if (PyList_Append(blocks, block)) { Py_DecRef(result); result = nullptr; }
    } else {  /* an error, or something to tell */
        Py_DecRef(result);
        Object* given = PyBytes_FromStringAndSize((const char*)slots, 8 * count);
        Object* given_up = is_large && code == GIVEN_UP ? True : False;
        result = given ? PyObject_CallFunctionObjArgs(ended, block, given, given_up, nullptr) : nullptr;
        if (given) Py_DecRef(given);
    }
    Py_DecRef(block);
    return result;
}

/* Whether a function returns this very object. */
static bool gives(Object* function, Object* wanted) {
    Object* found = PyObject_CallFunctionObjArgs(function, nullptr);
    if (!found) { PyErr_Clear(); return false; }
    Py_DecRef(found);
    return found == wanted;
}

/* Run code: of (facts, blocks, ended, settings, chosen), called with packed arguments. */
static Object* enter(Object* self, Object* const* arguments, Length) {
    const Word* facts = (const Word*)PyBytes_AsString(PyTuple_GetItem(self, 0));
    if (!is_a(arguments[0], PyBytes_Type)) return taken(False);
    const Word* grid = (const Word*)PyBytes_AsString(arguments[0]);
    Word threads = grid[0] * grid[1] * grid[2] * grid[3];
    if (threads >= facts[MOST]) return taken(False);
    if (threads >= facts[FEWEST] && !gives(PyTuple_GetItem(self, 3), PyTuple_GetItem(self, 4)))
        return taken(False);
    Length count = PyBytes_Size(arguments[0]) / 8;
    return run(facts, threads, PyTuple_GetItem(self, 1), PyTuple_GetItem(self, 2), grid, count);
}

struct Launch {
    Object* self;
    const Word* facts;
    Word slots[MOST_SLOTS], threads;
    Length used, arrays;
    Object* given[MOST_SLOTS];     /* held, by parameter */
    Object* memories[MOST_SLOTS];  /* held, too; null for a number */

    Object* item(Length i) { return PyTuple_GetItem(self, i); }
    Word fact(Length i, int which) { return facts[PARAMETERS + 3 * i + which]; }
    Object* call(int i) { return PyObject_CallFunctionObjArgs(item(i), nullptr); }

    bool take_grid(Object* dim) {
        threads = 1;
        Length rank = is_a(dim, PyTuple_Type) ? PyTuple_Size(dim) : 1;
        if (rank < 1 || rank > 4 || (facts[RANK] && facts[RANK] != rank)) return false;
        for (Length k = 0; k < 4; k++) {
            slots[k] = 1;
            if (k >= rank) continue;
            Object* extent = is_a(dim, PyTuple_Type) ? PyTuple_GetItem(dim, k) : dim;
            if (!is_a(extent, PyLong_Type)) return false;
            slots[k] = PyLong_AsLongLong(extent);
            if (slots[k] <= 0 || slots[k] >= facts[MOST]) { PyErr_Clear(); return false; }
            threads *= slots[k];
            if (threads >= facts[MOST]) return false;
        }
        used = 4;
        return true;
    }

    bool take_all(Object* inputs, Object* outputs) {
        Length count = 0;
        Object* both[] = {inputs, outputs};
        for (Object* several : both) {
            bool is_list = is_a(several, PyList_Type);
            if (!is_list && !is_a(several, PyTuple_Type)) return false;
            Length size = is_list ? PyList_Size(several) : PyTuple_Size(several);
            if (count + size > facts[COUNT]) return false;
            for (Length k = 0; k < size; k++)
                given[count++] = taken(is_list ? PyList_GetItem(several, k) : PyTuple_GetItem(several, k));
        }
        for (Length i = 0; i < count; i++)
            if (!(fact(i, 0) == ARRAY ? take_array(i) : take_number(i))) return false;
        return count == facts[COUNT];
    }

    bool take_array(Length i) {
        Object* one = given[i];
        if (!is_a(one, item(ARRAYS)) || of(one, type) != PyTuple_GetItem(item(TYPES), i)) return false;
        Object* memory = memories[i] = PyObject_GenericGetAttr(one, allocation);
        Object* part = of(one, packed);
        if (!memory || !part) { PyErr_Clear(); return false; }
        memcpy(slots + used, PyBytes_AsString(part), PyBytes_Size(part));
        used += PyBytes_Size(part) / 8;
        if (facts[TOTALS])
            for (Length k = 0; k < i; k++)
                if (memories[k] == memory) return false;
        return !fact(i, 1) || (is_true(memory, writable) && of(memory, folded) == False);
    }

    bool take_number(Length i) {
        Word kind = fact(i, 0), value = 0;
        if (kind & INTEGER) {
            if (!is_a(given[i], PyLong_Type)) return false;
            value = PyLong_AsLongLong(given[i]);
            if (value == -1 && PyErr_Occurred()) { PyErr_Clear(); return false; }
            if (value < fact(i, 1) || value > fact(i, 2)) return false;
            Word size = kind >> 4;
            if (size < 8) value &= (1ll << 8 * size) - 1;
        } else {
            if (!is_a(given[i], PyFloat_Type)) return false;
            double number = PyFloat_AsDouble(given[i]);
            if (!(-0x1p127 <= number && number <= 0x1p127)) return false;
            float narrow = (float)number;
            if (kind == FLOAT64) memcpy(&value, &number, 8);
            else memcpy(&value, &narrow, 4);
        }
        slots[used++] = value;
        return true;
    }

    /* Whether nobody has to hear of the writes. */
    bool is_unheard() {
        for (Length i = 0; i < facts[COUNT]; i++) {
            if (!memories[i] || !fact(i, 1)) continue;
            Object* watching = of(memories[i], watches);
            if (PyList_Size(of(watching, starts)) || PyTuple_Size(of(memories[i], witnesses))) return false;
        }
        return true;
    }

    bool count_writes() {
        for (Length i = 0; i < facts[COUNT]; i++) {
            if (!memories[i] || !fact(i, 1)) continue;
            Object* next = PyLong_FromLongLong(PyLong_AsLongLong(of(memories[i], version)) + 1);
            int failed = !next || PyObject_GenericSetAttr(memories[i], version, next);
            if (next) Py_DecRef(next);
            if (failed) return false;
        }
        return true;
    }

    /* Whether memory that is read has come from other memory: what is written then comes from that, too. */
    bool has_origin() {
        for (Length i = 0; i < facts[COUNT]; i++) {
            Object* memory = fact(i, 2) ? memories[i] : nullptr;
            if (memory && of(memory, origin) != None && is_true(memory, requires_grad)) return true;
        }
        return false;
    }

    bool is_traced(Length i) { return memories[i] && fact(i, 1) && is_true(memories[i], requires_grad); }

    /* Leave with what is written, memory with gradients, that it came from other such memory. */
    bool note_origin() {
        Object* sources = nullptr;
        bool fits = true;
        for (Length i = 0; i < facts[COUNT] && fits; i++) {
            Object* memory = memories[i];
            if (!memory || !fact(i, 2) || !is_true(memory, requires_grad)) continue;
            if (of(memory, adjoint) != None) continue;
            bool is_written = false, any = false;
            for (Length k = 0; k < facts[COUNT]; k++) {
                any |= is_traced(k);
                is_written |= is_traced(k) && memories[k] == memory;
            }
            if (is_written || !any) continue;
            if (!sources) sources = PyList_New(0);
            Object* ref = sources ? PyWeakref_NewRef(memory, nullptr) : nullptr;
            fits = ref && !PyList_Append(sources, ref);
            if (ref) Py_DecRef(ref);
        }
        if (!sources) return fits;
        Object* place = fits ? call(CALLER) : nullptr;
        Object* thread = place ? PyLong_FromUnsignedLong(PyThread_get_thread_ident()) : nullptr;
        for (Length i = 0; i < facts[COUNT] && thread; i++) {
            if (!is_traced(i)) continue;
            Object* note = PyTuple_New(5);
            if (!note) { fits = false; break; }
            Object* parts[5] = {of(memories[i], version), item(MADE_BY), place, thread, sources};
            for (int k = 0; k < 5; k++) PyTuple_SetItem(note, k, taken(parts[k]));
            fits &= !PyObject_GenericSetAttr(memories[i], origin, note);
            Py_DecRef(note);
        }
        fits = fits && thread;
        if (place) Py_DecRef(place);
        if (thread) Py_DecRef(thread);
        Py_DecRef(sources);
        return fits;
    }

    /* What a recorder gets: the packed arguments. */
    Object* parts() {
        Object* result = PyTuple_New(facts[COUNT]);
        Length at = 4;
        for (Length i = 0; result && i < facts[COUNT]; i++) {
            Object* part = memories[i] ? PyObject_GenericGetAttr(given[i], packed)
                                       : PyBytes_FromStringAndSize((const char*)(slots + at), 8);
            if (!part) { Py_DecRef(result); return nullptr; }
            at += PyBytes_Size(part) / 8;
            PyTuple_SetItem(result, i, part);
        }
        return result;
    }

    Object* go(Object* dim, Object* inputs, Object* outputs, bool is_recorded) {
        if (PyList_Size(item(ENTERED)) || PyDict_Size(item(OPEN)) || !take_grid(dim)) return taken(False);
        if (!gives(item(SETTINGS), item(QUIET))) return taken(False);
        Object* logs = PyObject_CallFunctionObjArgs(item(LOGS), item(DEBUG), nullptr);
        if (!logs) return nullptr;
        Py_DecRef(logs);
        if (logs != False) return taken(False);
        if (item(CONSTANTS) != None) {
            Object* same = PyObject_CallFunctionObjArgs(of(item(CONSTANTS), unchanged), nullptr);
            if (!same) return nullptr;
            Py_DecRef(same);
            if (same != True) return taken(False);
        }
        if (!take_all(inputs, outputs)) return taken(False);
        if (!gives(item(RECORDER), None)) return is_recorded ? parts() : taken(False);
        if (!is_unheard() || !PyList_Size(item(BLOCKS))) return taken(False);
        if (is_recorded && has_origin()) return taken(False);
        if (!count_writes() || (is_recorded && !note_origin())) return nullptr;
        return run(facts, threads, item(BLOCKS), item(ENDED), slots, used);
    }
};

/* Launch: called with the grid, inputs, outputs and whether tapes are to record it. */
static Object* launch(Object* self, Object* const* arguments, Length count) {
    if (count != 4 || (arguments[3] != True && arguments[3] != False)) return taken(False);
    Launch one;
    one.self = self;
    one.facts = (const Word*)PyBytes_AsString(one.item(0));
    for (Length i = 0; i < one.facts[COUNT]; i++) one.given[i] = one.memories[i] = nullptr;
    Object* result = one.go(arguments[0], arguments[1], arguments[2], arguments[3] == True);
    for (Length i = 0; i < one.facts[COUNT]; i++)
        if (one.given[i]) {
            Py_DecRef(one.given[i]);
            if (one.memories[i]) Py_DecRef(one.memories[i]);
        }
    return result;
}

static Definition entering = {"enter", enter, 0x80, nullptr}, launching = {"launch", launch, 0x80, nullptr};

extern "C" Object* of_entry(Object* self) { return PyCFunction_NewEx(&entering, self, nullptr); }
extern "C" Object* of_launch(Object* self) { return PyCFunction_NewEx(&launching, self, nullptr); }
#define INTERN(name) name = PyUnicode_InternFromString(#name);
extern "C" void begin() { NAMES(INTERN) }
"""


class Native:
    """The library of this process."""

    def __init__(self, path: Path) -> None:
        library = ctypes.PyDLL(str(path))
        library.begin()
        self._of_entry, self._of_launch = library.of_entry, library.of_launch
        for make in (self._of_entry, self._of_launch):
            make.argtypes, make.restype = [ctypes.py_object], ctypes.py_object

    def entering(
        self,
        code: Code,
        blocks: list[Any],
        ended: Ended,
        settings: Callable[[], object],
        chosen: object,
    ) -> Callable[[Any], bool]:
        """What runs code on packed arguments; vector code while `settings` returns what was `chosen`."""
        enter: Callable[[Any], bool] = self._of_entry((facts(code), blocks, ended, settings, chosen))
        return enter

    def launching(self, launched: "Launched") -> Callable[..., Any]:
        """What launches a kernel of usual arguments: called with grid, inputs, outputs, `record_tape`."""
        launch: Callable[..., Any] = self._of_launch(launched)
        return launch


def is_possible() -> bool:
    """Whether this Python is one that the text is written for."""
    is_usual = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
    return is_usual and sys.byteorder == "little" and ctypes.sizeof(ctypes.c_long) == 8


def build(cache: Cache, compiler: Compiler) -> Native:
    """The library, built and loaded; raises BuildError, and OSError where Python does not offer its ABI."""
    numbers = {"ARRAY": ARRAY, "INTEGER": INTEGER, "FLOAT64": FLOAT64}
    numbers |= {"GIVEN_UP": GIVEN_UP, "MOST_SLOTS": MOST_SLOTS}
    items = (name.upper() for name in Launched._fields)
    numbers |= {name: k for names in (_FACTS, items) for k, name in enumerate(names)}
    defined = "".join(f"#define {name} {number}\n" for name, number in numbers.items())
    unit = Unit(tuple(Line(line) for line in (defined + TEXT).splitlines()), ())
    key = key_of(unit.text, compiler.identity)
    return cache.library(key, lambda path: compiler.compile(unit, path), Native)


Kind = tuple[int, int, int]
"""A parameter: its kind and the two words that go with it."""


def facts(code: Code, rank: int = 0, totals: bool = False, kinds: Sequence[Kind] = ()) -> bytes:
    """The facts of a launch as its function holds them."""
    words = [*code, len(kinds), rank, totals, *(word for kind in kinds for word in kind)]
    return pack(f"={len(words)}q", *words)
