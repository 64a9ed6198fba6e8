# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the program ip: namespaces are files of a directory."""

import pathlib
import tempfile
import unittest
from unittest import mock

from vswitch_aware_scheduler.lab.calibrate import machine

_IP = '''#!/bin/sh
printf '%s\\n' "$*" >> {log}
case "$1 $2" in
"netns list") ls {there} ;;
"netns add") : > {there}/"$3" ;;
"netns delete") rm {there}/"$3" ;;
"netns pids") cat {there}/"$3" ;;
"netns exec") shift 3; PATH={programs} exec "$@" ;;
-n*) [ -e {there}/"$2" ] || {{ echo "no namespace $2" >&2; exit 1; }}
     case "$*" in *"type gretap"*) echo "Unknown device type" >&2; exit 2;;
     esac ;;
*) exit 9 ;;
esac
'''


class NamespacesTestCase(unittest.TestCase):

    def setUp(self):
        super().setUp()
        directory = self.enterContext(tempfile.TemporaryDirectory())
        self.root = pathlib.Path(directory)
        self.there = self.root / 'netns'
        self.there.mkdir()
        self.programs = self.root / 'bin'
        self.programs.mkdir()
        self.log = self.root / 'log'
        self.log.touch()
        self.state = self.root / 'state'
        self.program('ip', _IP.format(
            log=self.log, there=self.there, programs=self.programs))
        # There is no network behind these namespaces: nothing may be sent.
        self.program('ping', '#!/bin/sh\nexit 0\n')
        self.enterContext(mock.patch.object(
            machine, '_PATH', f'{self.programs}:/usr/bin:/bin'))

    def program(self, name, text):
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)

    def namespaces(self):
        return sorted(path.name for path in self.there.iterdir())

    def commands(self):
        return self.log.read_text().splitlines()
