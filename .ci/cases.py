#!/usr/bin/env python3
"""Runs the cases beside the project under corral and holds each against its right value.

  cases.py CORRAL CASES_DIR [NN]...

A case that holds in any mode is run twice: as corral chooses (in a group, where the
case leaves it one) and without a group. One that needs a group is run in that alone.
A case without a right value here is run as well and must at least end, with nothing
left.
"""
import os
import re
import signal
import subprocess
import sys
import tempfile

WALL = 124
# case number: (exit status, most seconds, survivors, what the output must match)
RIGHT = {
    '01': (0, 1.5, 0, [r'^done$']),
    '02': (0, 1.5, 0, [r'foreground-done|noise']),
    '04': (0, 1.5, 0, [r'^work$']),
    '05': (3, 3, 0, [r'^LAST LINE$']),
    '07': (0, 1.5, 0, [r'^main-result$']),
    '08': (0, 1.5, 0, [r'^pushed$']),
    '10': (7, 3, 0, [r'assertion failed']),
    '11': (0, 30, 0, [r'ok=40 leaks_reported=0']),
    '13': (0, 3, 0, [r'^started$', r'left 1 process behind']),
    '14': (WALL, 5, 0, []),
    '15': (0, 3, 0, [r'^started$']),
    '16': (0, 3, 0, [r'^signed$']),
    '19': (0, 3, 0, [r'fake-buildd']),
    '20': (0, 3, None, [r'rc=0', r'outside alive: yes']),
    '21': (WALL, 6, 0, []),
    '23': (WALL, 6, 0, []),
    '24': (0, 6, 0, [r'rc=124', r'left: 0']),
    '27': (WALL, 6, 0, []),
    '28': (0, 5, 0, [r'^hi$']),
    '30': (0, 3, 0, [r'^moved$']),
    '31': (WALL, 4, 0, [r'SIGKILL needed']),
    '34': (0, 5, 0, [r'rc 7']),
    '36': (0, 6, 0, [r'rc -2 after [0-2]']),
    '38': (WALL, 4, 0, []),
    '39': (120, 6, 1, [r'cannot prove']),
    '40': (0, 8, 1, [r'rc=120', r'uid 0']),
    '41': (WALL, 5, 0, [r'cleanup finished']),
    '43': (WALL, 4, 0, [r'^cleanup$']),
    '45': (0, 4, 0, [r'^ok$']),
    '46': (0, 4, 0, [r'threads: 2']),
    '49': (WALL, 6, 0, []),
    '50': (0, 6, 0, [r'zombies: 0', r'rc=4']),
    '52': (0, 6, 0, [r'rc=6', r'json complete: yes']),
    '53': (0, 6, None, [r'rc=124', r'bystander alive']),
    '55': (0, 6, 0, [r'^ran$', r'rc=0']),
    '56': (0, 12, 1, [r'rc=120']),
    '57': (0, 8, 0, [r'got hi', r'rc=0']),
    '58': (0, 8, 0, [r'rc=130']),
    '60': (0, 8, 0, [r'echo restored']),
    '62': (0, 5, 0, [r'loops: 3', r'rest: two']),
    '64': (124, 3, 0, []),
    '66': (WALL, 5, 0, []),
    '67': (0, 5, 0, [r'cmd=127', r'noexec=126', r'badinterp=127', r'noshebang=0']),
    '70': (0, 6, 0, [r'left: 0']),
    '72': (0, 30, 0, []),
    '73': (0, 8, 0, [r'rc 124 returned after [23]\d\d\d ms']),
    '74': (WALL, 8, 0, []),
    '77': (0, 5, 0, [r'^same$', r'json ok']),
    '78': (0, 8, 0, [r'inversions: 0 lines: 400']),
    '80': (0, 5, 0, [r'rc=3']),
    '81': (0, 9, 0, [r'/dev/full rc=118', r'x\.json rc=125', r'fifo rc=125']),
    '85': (0, 6, 0, [r'rc=124']),
    '86': (0, 9, 0, [r'^0\.5s=124', r'^0=125', r'^-1s=125', r'^NaN=125', r'^1x=125', r'^1=125']),
    '87': (0, 6, 0, [r'ro rc=8', r'absent rc=8']),
    '89': (0, 4, 0, [r'type: threaded']),
    '91': (0, 9, 0, [r'hungry child: 137', r'rc=0']),
    '92': (0, 5, 0, [r'stderr=0']),
    '93': (0, 5, 0, [r'fds: 0 1 2 7 8']),
    '96': (0, 8, 0, [r'^started$', r'rc=0', r'left: 0']),
}
NEEDS = ('base', 'guardian', 'enforced')
# What a case asks for: the modes that it is run in.
MODES = {'any': ['auto', 'fallback'], 'enforced': ['enforced']}


def header(path, name):
    with open(path, errors='replace') as text:
        found = re.search(rf'^# {name}: (.*)$', text.read(), re.M)
    return found.group(1).strip() if found else ''


def in_mode(corral, mode, place):
    """A program that is corral in this mode, for cases that start it themselves."""
    path = os.path.join(place, mode)
    with open(path, 'w') as text:
        text.write(f"#!/bin/sh\nexec '{corral}' --cgroup-mode={mode} \"$@\"\n")
    os.chmod(path, 0o755)
    return path


def check(corral, cases, name):
    path = os.path.join(cases, name)
    done = subprocess.run(
        [sys.executable, os.path.join(cases, 'run.py'), '--wrap', 'corral', '--corral', corral, path],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=120, cwd=tempfile.gettempdir())
    text = done.stdout.decode('utf-8', 'replace')
    head = re.search(r'rc=(\S+)\s+t=\s*([\d.]+)s.*survivors=(\d+)', text)
    if not head:
        return f'no result: {text[:300]}{done.stderr.decode("utf-8", "replace")[:500]}'
    status, seconds, survivors = head.group(1), float(head.group(2)), int(head.group(3))
    output = re.sub(r'^    \| ?', '', text, flags=re.M)
    if re.search(r'^skip: ', output, re.M):
        return 'skipped: ' + output.splitlines()[-1]
    right = RIGHT.get(name.split('-')[0])
    if right is None:
        ended = status != 'HUNG' and survivors == 0
        return '' if ended else f'a case without a row here: {text}'
    want, most, left, patterns = right
    wrong = []
    if status != str(want):
        wrong.append(f'status {status}, right is {want}')
    if seconds > most + 5:  # a noisy machine is no fault
        wrong.append(f'{seconds}s, right is at most {most}s')
    if left is not None and survivors != left:
        wrong.append(f'{survivors} survivors, right is {left}')
    wrong += [f'no {p!r}' for p in patterns if not re.search(p, output, re.M)]
    return '; '.join(wrong) + (f'\n{text}' if wrong else '')


def main():
    # A job that a shell has put in the background ignores them, and so would the cases.
    for ignored in signal.SIGINT, signal.SIGQUIT:
        signal.signal(ignored, signal.SIG_DFL)
    corral, cases = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    chosen = sys.argv[3:]
    passed = failed = 0
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        for name in sorted(os.listdir(cases)):
            path = os.path.join(cases, name)
            if not re.match(r'\d\d.*\.sh$', name) or chosen and name[:2] not in chosen:
                continue
            if header(path, 'needs') not in NEEDS:
                continue
            for mode in MODES.get(header(path, 'mode'), []):
                wrong = check(in_mode(corral, mode, place), cases, name)
                if wrong:
                    failed += 1
                    print(f'FAILED {name} ({mode}): {wrong}')
                else:
                    passed += 1
    print(f'cases: {passed} passed, {failed} failed')
    sys.exit(1 if failed or not passed else 0)


main()
