# SPDX-License-Identifier: Apache-2.0
"""A client of services that openstacksdk finds.

openstacksdk knows where a service is and which versions of its API there are;
requests go through :class:`.service.Client`, with its bounds, pace and
retries. Of the services' APIs it knows only how all of them page.
"""

from vswitch_aware_scheduler.telemetry import service

__all__ = ['SdkClient', 'has_next']


class SdkClient(service.Client):
    """A Client that asks through openstacksdk, which finds the service."""

    @property
    def name(self):
        """Name of what is read, for messages."""
        return self._source

    def __enter__(self):
        super().__enter__()
        # Late: an extra, and slow to import.
        from openstack import connection
        from openstack import exceptions as sdk_exceptions
        self.no_connection += (sdk_exceptions.SDKException,)
        options = self.adapter_options()
        kind = self._service_type
        known = connection.Connection(
            session=self.session, region_name=options['region_name'],
            **{f'{kind}_interface': options['interface'],
               f'{kind}_endpoint_override': options['endpoint_override']})
        # It asks which versions there are.
        self.adapter = self.attempt(
            'versions', f'the {kind} API', lambda: getattr(known, kind))
        return self


def has_next(answer, kind):
    """Return whether more of a list follows an answer that has a part of it.

    :param answer: decoded JSON object
    :param kind: key of the items in it
    """
    return any(link['rel'] == 'next'
               for link in answer.get(f'{kind}_links') or ())
