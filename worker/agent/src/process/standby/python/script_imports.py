"""What a program imports at its top level, as its source says. Nothing of the program is executed."""

import ast
import importlib.util
import os
import site
import sys
import sysconfig


class Unreadable(Exception):
    """The source of the program cannot be read."""


def imports_of(program, directory):
    """The installed modules that a program imports, each with the names that it imports from the module.

    `directory` is the first one in which the program looks for modules. Modules there are read, too.
    """
    imports = _Imports(directory)
    try:
        if program[0] == "-c":
            imports.read(program[1], "<string>", "")
        elif program[0] != "-m":
            imports.read_file(program[0], "")
        elif not imports.read_module(program[1]) and not imports.read_module(program[1] + ".__main__"):
            raise Unreadable(f"the source of {program[1]} is not found")
    except (OSError, SyntaxError, ValueError) as error:
        raise Unreadable(f"the program cannot be read: {error}") from error
    return imports.found


class _Imports:
    def __init__(self, directory):
        self.found = []
        self._directory = directory
        self._read = set()
        paths = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
        paths += [*site.getsitepackages(), site.getusersitepackages()]
        self._roots = [os.path.join(os.path.realpath(path), "") for path in paths]

    def read_file(self, path, package):
        if path not in self._read:
            self._read.add(path)
            with open(path, "rb") as file:
                self.read(file.read(), path, package)

    def read(self, source, path, package):
        for node in _statements(compile(source, path, "exec", ast.PyCF_ONLY_AST).body):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._add(alias.name, [])
            else:
                self._add(_base(node, package), [alias.name for alias in node.names if alias.name != "*"])

    def read_module(self, name):
        """Reads the source of a module, wherever it is. Returns whether it has one."""
        for directory in [self._directory, *sys.path]:
            path, package = _source(directory, name)
            if path:
                self.read_file(path, package)
                return True
        return False

    def _add(self, name, names):
        top = name.split(".")[0]
        if not top:
            return
        if _source(self._directory, top)[0]:
            parts = name.split(".")
            prefixes = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
            for module in prefixes + [name + "." + one for one in names]:
                self._read_beside(module)
        elif self._is_installed(top):
            self.found.append((name, names))

    def _read_beside(self, module):
        path, package = _source(self._directory, module)
        if path:
            try:
                self.read_file(path, package)
            except (OSError, SyntaxError, ValueError):
                pass  # The program reports it.

    def _is_installed(self, top):
        """Whether a module is of the standard library or an installed package, so that it is not of the user."""
        if top in sys.builtin_module_names:
            return True
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError):
            return False
        if spec is None:
            return False
        if spec.origin in ("built-in", "frozen"):
            return True
        places = list(spec.submodule_search_locations or [spec.origin or ""])
        return all(self._is_below_roots(place) for place in places)

    def _is_below_roots(self, path):
        path = os.path.join(os.path.realpath(path), "")
        return any(path.startswith(root) for root in self._roots)


def _statements(body):
    """The imports of a module that run when it is imported, also those in `try`."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield node
        elif isinstance(node, ast.Try):
            yield from _statements(node.body)


def _base(node, package):
    """The absolute name of the module from which a statement imports."""
    module = node.module.split(".") if node.module else []
    if not node.level:
        return ".".join(module)
    base = package.split(".") if package else []
    return ".".join(base[: len(base) + 1 - node.level] + module)


def _source(directory, name):
    """The file of a module in a directory, and the package to which its relative imports refer."""
    path = os.path.join(directory, *name.split("."))
    if os.path.isfile(os.path.join(path, "__init__.py")):
        return os.path.join(path, "__init__.py"), name
    if os.path.isfile(path + ".py"):
        return path + ".py", name.rpartition(".")[0]
    return None, None
