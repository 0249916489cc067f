"""Serialises the call of ``elasticrun.run`` for its workers, or says why it cannot travel."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._function_call import Call

__all__ = ["call_by_value", "call_of_this_program"]

#: Names of the main module: that of a program, and that of a program which a worker has imported again.
_MAIN = ("__main__", "__mp_main__")


def call_of_this_program(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
    """The call for workers that share the modules of this process. Without cloudpickle, ``fn`` must be of a module.

    Raises:
        TypeError: it is no function call, or cannot be pickled.
    """
    # An empty entry means the current directory of the caller, which a worker does not share.
    path = [os.path.abspath(entry) for entry in sys.path]
    try:
        importlib.import_module("cloudpickle")
    except ImportError:
        return _call_by_reference(fn, args, kwargs, path)
    return call_by_value("cloudpickle", fn, args, kwargs, path)


def call_by_value(
    module: str, fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], path: list[str]
) -> Call:
    """The call with what cannot be imported pickled by value, by a ``module`` with the interface of cloudpickle.

    Raises:
        TypeError: it is no function call, or cannot be pickled.
    """
    what = _checked(fn, args, kwargs)
    try:
        pickled = importlib.import_module(module).dumps(what)
    except Exception as error:
        raise TypeError(
            f"{_name(fn)} or its arguments cannot be pickled ({error}): make in the function what cannot travel, such as"
            " connections, locks and the SparkContext"
        ) from error
    return Call(path, None, pickled, module)


def _call_by_reference(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], path: list[str]) -> Call:
    what = _checked(fn, args, kwargs)
    try:
        pickled = pickle.dumps(what, protocol=5)
    except Exception as error:
        raise TypeError(
            f"the call cannot be pickled ({error}): use a function of a module and plain arguments, or"
            " pip install cloudpickle"
        ) from error
    prepare = _main_module(fn) if getattr(fn, "__module__", None) in _MAIN else None
    return Call(path, prepare, pickled)


def _main_module(fn: Callable[..., Any]) -> dict[str, Any]:
    """What a worker needs to import the main module again.

    Raises:
        TypeError: it is of no file, as in a notebook, with ``-c`` or from standard input.
    """
    from multiprocessing import spawn

    prepare = spawn.get_preparation_data("elasticrun")
    prepare.pop("authkey", None)
    # For a program from standard input the path is that of no file.
    if "init_main_from_name" in prepare or os.path.isfile(prepare.get("init_main_from_path", "")):
        return prepare
    raise TypeError(
        f"{_name(fn)} is of a main module that has no file: put it into a module, or pip install cloudpickle"
    )


def _checked(fn: object, args: object, kwargs: Mapping[str, Any]) -> tuple[object, tuple[Any, ...], dict[str, Any]]:
    if not callable(fn):
        raise TypeError(f"fn {fn!r}: expected a function; the program elasticrun starts commands")
    if isinstance(args, (str, bytes)) or not hasattr(args, "__iter__"):
        raise TypeError(f"args {args!r}: expected a tuple or list of arguments, such as ({args!r},)")
    return fn, tuple(args), dict(kwargs)


def _name(fn: object) -> object:
    return getattr(fn, "__qualname__", fn)
