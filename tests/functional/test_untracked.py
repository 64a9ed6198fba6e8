# SPDX-License-Identifier: Apache-2.0
"""The main scenarios with [filter_scheduler]/track_instance_changes off."""

from tests.functional import test_boot
from tests.functional import test_delete
from tests.functional import test_evacuate
from tests.functional import test_groups
from tests.functional import test_migration
from tests.functional import test_multi_create
from tests.functional import test_record
from tests.functional import test_resize
from tests.functional import test_shelve


class BootUntrackedTestCase(test_boot.BootTestCase):
    TRACK_INSTANCE_CHANGES = False


class RescheduleUntrackedTestCase(test_record.RescheduleTestCase):
    TRACK_INSTANCE_CHANGES = False


class DeleteUntrackedTestCase(test_delete.DeleteTestCase):
    TRACK_INSTANCE_CHANGES = False


class EvacuateUntrackedTestCase(test_evacuate.EvacuateTestCase):
    TRACK_INSTANCE_CHANGES = False


class ServerGroupUntrackedTestCase(test_groups.ServerGroupTestCase):
    TRACK_INSTANCE_CHANGES = False


class MigrationUntrackedTestCase(test_migration.MigrationTestCase):
    TRACK_INSTANCE_CHANGES = False


class MultiCreateUntrackedTestCase(test_multi_create.MultiCreateTestCase):
    TRACK_INSTANCE_CHANGES = False


class ResizeUntrackedTestCase(test_resize.ResizeTestCase):
    TRACK_INSTANCE_CHANGES = False


class ShelveUntrackedTestCase(test_shelve.ShelveTestCase):
    TRACK_INSTANCE_CHANGES = False
