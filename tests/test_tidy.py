"""The style of the code: lengths, leftovers, and files that must not be in the repository."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 600
LINE_CHARACTERS_MAX = 100
TABLES = {"src/naksha/model/limits.py"}
"""Modules that are looked things up in, not read."""

# Written so that this file does not find itself.
LEFTOVERS = re.compile("TO" + "DO|FIX" + "ME")
MACHINE_PATHS = re.compile(r"(?<![\w.}/-])/(?:wo" + "rk|ro" + r"ot|opt|home)(?=[/\s\"'`),;:]|$)")
INDEX_HOSTS = re.compile(
    "pypi" + r"\.org|python" + r"hosted|deb\.deb" + r"ian\.|registry\.np" + "mjs"
    r"|--(?:extra-)?index" + r"-url|--find" + "-links|file:" + "///(?:opt|root|home|work|usr)/"
)
SQL_COMMENT = re.compile("--.*")
SQL_FUNCTION = re.compile(
    r"^CREATE\s+(?:OR\s+REPLACE\s+)?(?:FUNCTION|PROCEDURE)\s+(?P<name>[\w.]+)[^;]*?"
    r"(?:(?P<tag>\$\w*\$).*?(?P=tag)|\bBEGIN\s+ATOMIC\b.*?^END\b)",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
SQL_STATEMENT = re.compile(
    r"\s*(?:SELECT|INSERT INTO|UPDATE \S+ SET|DELETE FROM|WITH \w+ AS|COPY|CREATE|ALTER|DROP)\s"
)
ENVIRONMENT = {"environ", "environb", "getenv"}
READS_CONFIGURATION = {"cli", "api", "testing"}
ENTRY_POINTS = {"main.py", "__main__.py"}
MIGRATIONS = "src/naksha/psql/sql/migrations"
SAME_NUMBER = {"0005_post_tombstone_marks", "0005_post_upsert_lock"}
"""Migrations with the same number; their names are recorded in storages, so they cannot change."""
ROOM_MODULES_MAX = 22
"""A folder with more modules than this, `__init__.py` included, is hard to search."""
GERUNDS = {
    "binding": "parameter binding of endpoints",
    "clustering": "the query parameter `clustering`",
    "encoding": "response encoding",
    "fencing": "fencing of realms by an epoch",
    "loading": "the parts of the job `load`",
    "mapping": "the mapping of a load",
    "paging": "keyset paging",
    "partitioning": "optimal partitioning, a term of the source documents",
    "routing": "HTTP routing",
    "sampling": "samples of features",
    "staging": "staged writes",
    "testing": "the shipped test tools",
    "versioning": "versions of data",
}
"""Module names that end in -ing, each with the field's term that it stands for."""
# Written so that this file does not find itself.
DIALECT = re.compile(
    r"\b(?:who" + r"ever|ane" + r"w|some" + r"body|who " + r"asks|handed " + r"on|found " + r"out|"
    r"(?:is|are) " + r"told|put " + r"together|come " + r"again)\b",
    re.IGNORECASE,
)
"""Phrases for which the field has a term: the caller, the client, again, passed to, returned."""
HABITS = re.compile(
    r"(?<!there )\b(?:is|are) no (?!longer\b|more\b)|\b(?:no|some)body (?=[a-z])|\bhis\b"
    r'|"""(?:What|Who|Where)\b',
    re.IGNORECASE,
)
"""Habits that make a reader translate: `X is not a Y`, `the caller`, `their`, and a docstring that
says what something is."""
TEST_DIALECT = re.compile(
    r"test_(?:what|whatever|who|whoever|those|they|he)_|_(?:who|whoever|whom|told|tells|anew|his)"
    r"(?:_|$)|_(?:some|no)body(?:_|$)|_nasty_|(?<!there)_(?:is|are)_no_(?!longer_)"
)
"""Names of tests without a subject, or with words that `DIALECT` and `HABITS` refuse."""
PLUGIN_API = {"model", "spi", "testing", "api"}
"""Packages that code outside of the repository imports."""
SAME_ROLE = {
    "BulkStorage": "a base class of the storage with bulk operations, in psql and in sqlite",
    "InSession": "the reader of other layers inside of a session, in psql and in sqlite",
    "PoolExhausted": "the error of a pool without a free connection, in psql and in sqlite",
    "SplitPayload": "the content of a split that only its storage reads, in psql and in sqlite",
    "Statement": "SQL text under construction with its parameters, in psql and in sqlite",
}
"""Class names that several modules share, because the classes have the same role in each."""
SHELL = {"Makefile", ".ci/run", ".gitignore"}
"""Files with comments whose names have no suffix."""
OWN_PROGRAMS = {"hub/remote/program.py"}
"""Modules that are run by their own name."""
TELLS_OTHERS = {
    "psql/maintenance/backup.py",
    "spark/runtime/sessions.py",
    "spark/jobs/loading/tables.py",
}
"""Modules that set the environment of programs, and of GDAL, that they start, and that listen to
nothing else."""


@cache
def files(*suffixes: str) -> list[Path]:
    """The repository's files, also those not yet committed, but nothing that is ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = (ROOT / line for line in listed.splitlines())
    return [path for path in paths if path.is_file() and (not suffixes or path.suffix in suffixes)]


def short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def python_functions(source: str) -> Iterator[tuple[str, int, int]]:
    """Name, first line and length of every function."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def sql_functions(source: str) -> Iterator[tuple[str, int, int]]:
    """Name, first line and length of every function, from CREATE to the end of its body."""
    source = SQL_COMMENT.sub("", source)
    for match in SQL_FUNCTION.finditer(source):
        first = source.count("\n", 0, match.start()) + 1
        yield match["name"], first, match[0].count("\n") + 1


def docstrings(tree: ast.AST) -> set[int]:
    """The identities of the nodes that are docstrings."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, owners) and node.body and isinstance(node.body[0], ast.Expr)
    }


def test_functions_can_be_read_without_scrolling() -> None:
    found = [(path, python_functions(path.read_text())) for path in files(".py")]
    found += [(path, sql_functions(path.read_text())) for path in files(".sql")]
    long = [
        f"{short(path)}:{line} {name}: {length} lines"
        for path, functions in found
        for name, line, length in functions
        if length > FUNCTION_LINES_MAX
    ]
    assert not long


def test_modules_are_short() -> None:
    lengths = {short(path): len(path.read_text().splitlines()) for path in files(".py", ".sql")}
    long = {path: length for path, length in lengths.items() if length > MODULE_LINES_MAX}
    assert not long.keys() - TABLES


def test_lines_fit() -> None:
    long = [
        f"{short(path)}:{number}"
        for path in files(".py", ".sql", ".sh", ".toml")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > LINE_CHARACTERS_MAX
    ]
    assert not long


@pytest.mark.parametrize("pattern", [LEFTOVERS, MACHINE_PATHS, INDEX_HOSTS])
def test_nothing_unfinished_and_nothing_of_one_machine(pattern: re.Pattern[str]) -> None:
    found = [
        f"{short(path)}:{number}: {line.strip()}"
        for path in files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found


def test_prose_uses_the_terms_of_the_field() -> None:
    found = [
        f"{short(path)}:{number}: {line.strip()}"
        for path in files()
        if path.suffix in {".py", ".sql", ".sh", ".md"} or short(path) in SHELL
        if path != Path(__file__).resolve() and not short(path).startswith("tests/data/")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if DIALECT.search(line) or (path.suffix != ".md" and HABITS.search(line))
    ]
    assert not found


def test_names_of_tests_name_their_subject() -> None:
    found = [
        f"{short(path)}: {name}"
        for path in files(".py")
        for name in re.findall(r"\bdef (test_\w+)", path.read_text())
        if TEST_DIALECT.search(name)
    ]
    assert not found


def test_class_names_have_one_meaning() -> None:
    names = Counter(
        node.name
        for path in files(".py")
        if short(path).startswith("src/")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    shared = {name for name, n in names.items() if n > 1}
    assert shared == SAME_ROLE.keys()


def module_names(source: str) -> Iterator[str]:
    """Functions without decorators, and constants, of a module."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list:
            yield node.name
        targets = node.targets if isinstance(node, ast.Assign) else ()
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        yield from (one.id for one in targets if isinstance(one, ast.Name) and one.id.isupper())


def test_names_of_one_module_are_marked() -> None:
    package = ROOT / "src" / "naksha"
    texts = {path: path.read_text(errors="replace") for path in files()}
    uses = Counter(word for text in texts.values() for word in set(re.findall(r"\w+", text)))
    found = [
        f"{short(path)}: {name}"
        for path in files(".py")
        if path.is_relative_to(package) and path.relative_to(package).parts[0] not in PLUGIN_API
        for name in module_names(texts[path])
        if uses[name] == 1 and not name.startswith("_")
    ]
    assert not found


def test_folders_are_small() -> None:
    modules = Counter(
        path.parent for path in files(".py") if short(path).startswith(("src/", "tests/"))
    )
    crowded = {short(folder): n for folder, n in modules.items() if n > ROOM_MODULES_MAX}
    assert not crowded


def test_migrations_have_numbers_of_their_own() -> None:
    names = [path.stem for path in files(".sql") if short(path.parent) == MIGRATIONS]
    numbers = Counter(name[:4] for name in names)
    assert {name for name in names if numbers[name[:4]] > 1} == SAME_NUMBER


def test_modules_are_named_by_nouns() -> None:
    package = ROOT / "src" / "naksha"
    names = {
        part.removeprefix("suite_")
        for path in files(".py")
        if path.is_relative_to(package)
        for part in path.relative_to(package).with_suffix("").parts
    }
    gerunds = {name for name in names if name.endswith("ing") and not name.endswith("string")}
    assert gerunds == GERUNDS.keys()


def test_everything_is_pinned() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    packages = [line for line in lines if not line.lstrip().startswith("#")]
    assert packages
    assert not [line for line in packages if not re.match(r"[a-z0-9._-]+==[\w.]+( ;|$)", line)]


def test_only_entry_points_read_the_environment() -> None:
    package = ROOT / "src" / "naksha"
    found = [
        f"{short(path)}:{node.lineno}"
        for path in files(".py")
        if path.is_relative_to(package)
        and path.relative_to(package).parts[0] not in READS_CONFIGURATION
        and path.name not in ENTRY_POINTS
        and path.relative_to(package).as_posix() not in OWN_PROGRAMS | TELLS_OTHERS
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in ENVIRONMENT)
        or (isinstance(node, ast.Name) and node.id in ENVIRONMENT)
    ]
    assert not found


def test_sql_lives_in_files() -> None:
    package = ROOT / "src" / "naksha"
    found = []
    for path in files(".py"):
        if not path.is_relative_to(package) or path.is_relative_to(package / "testing"):
            continue
        tree = ast.parse(path.read_text())
        prose = docstrings(tree)
        found += [
            f"{short(path)}:{node.lineno}: {node.value.strip()[:40]}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in prose
            and SQL_STATEMENT.match(node.value)
        ]
    assert not found


def test_the_measure_of_sql_functions_works() -> None:
    source = "\n".join(
        [
            "SELECT 1;",
            "CREATE OR REPLACE FUNCTION naksha.first(a int -- ; here too",
            ") RETURNS int LANGUAGE sql AS $$",
            "  SELECT $1",
            "$$;",
            "create function second(a int)",
            "returns int language plpgsql as $body$",
            "begin execute $$ SELECT 1 $$; end",
            "$body$;",
            "CREATE FUNCTION short() RETURNS int RETURN 1;",
            "CREATE FUNCTION third() RETURNS int BEGIN ATOMIC",
            "  SELECT 1;",
            "END;",
        ]
    )
    assert list(sql_functions(source)) == [
        ("naksha.first", 2, 4),
        ("second", 6, 4),
        ("third", 11, 3),
    ]


def test_the_patterns_find_what_they_are_for() -> None:
    assert MACHINE_PATHS.search("see " + "/wo" + "rk/x") is not None
    assert MACHINE_PATHS.search("the " + "/ro" + "ot") is not None
    assert MACHINE_PATHS.search("net" + "/work.txt and /workers") is None
    assert INDEX_HOSTS.search("https://pypi" + ".org/simple") is not None
