#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Print the structure of the package: rooms, arrows, lines, what is long.

A room is a package or module of the first level. An arrow is a pair of rooms
one of which imports the other. Lines of code are those without docstrings,
comments and blank lines.
"""

import ast
import collections
import io
import pathlib
import tokenize

PACKAGE = 'vswitch_aware_scheduler'
ROOT = pathlib.Path(__file__).resolve().parents[1] / PACKAGE

#: What is printed as long: functions by lines and parameters, modules by lines
#: of code.
LINES, PARAMETERS, MODULE = 80, 8, 600

_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
            tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}


def code_lines(source, tree):
    """Return the numbers of the lines of code of a module."""
    docstrings = set()
    for node in ast.walk(tree):
        body = getattr(node, 'body', None)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) \
                and body and isinstance(body[0], ast.Expr) \
                and isinstance(body[0].value, ast.Constant) \
                and isinstance(body[0].value.value, str):
            docstrings.update(range(body[0].lineno, body[0].end_lineno + 1))
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - docstrings


def imported(tree):
    """Yield the modules of the package that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or '').split(
                '.')[0] == PACKAGE:
            for alias in node.names:
                yield f'{node.module}.{alias.name}'.partition('.')[2]


def main():
    rooms, arrows, long_ones = collections.Counter(), set(), []
    for path in sorted(ROOT.rglob('*.py')):
        name = path.relative_to(ROOT)
        room = name.parts[0].removesuffix('.py')
        source = path.read_text(encoding='utf-8')
        tree = ast.parse(source)
        lines = len(code_lines(source, tree))
        if room == '__init__':
            continue
        rooms[room] += lines
        arrows.update((room, other.partition('.')[0])
                      for other in imported(tree))
        if lines > MODULE:
            long_ones.append(f'{name}: {lines} lines of code')
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                length = node.end_lineno - node.lineno + 1
                arguments = node.args
                count = len([argument for argument in (
                    *arguments.posonlyargs, *arguments.args,
                    *arguments.kwonlyargs)
                    if argument.arg not in ('self', 'cls')])
                if length > LINES or count > PARAMETERS:
                    long_ones.append(f'{name}: {node.name}: {length} lines, '
                                     f'{count} parameters')
    arrows = {(one, other) for one, other in arrows if one != other}
    for room, lines in sorted(rooms.items()):
        print(f'{room:20}{lines:7}  imports ' + ', '.join(sorted(
            other for one, other in arrows if one == room)))
    laboratory = rooms['lab']
    print(f'{len(rooms)} rooms, {len(arrows)} arrows; lines of code: core '
          f'{sum(rooms.values()) - laboratory}, laboratory {laboratory}')
    print(*long_ones, sep='\n')


if __name__ == '__main__':
    main()
