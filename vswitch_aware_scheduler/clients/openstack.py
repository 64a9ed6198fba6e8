# SPDX-License-Identifier: Apache-2.0
"""A client of services that openstacksdk finds.

openstacksdk knows where a service is and which versions of its API there are;
requests go through :class:`.Client`, with its bounds, pace and
retries. Of the services' APIs it knows only how all of them page.
"""

from vswitch_aware_scheduler.clients import http
from vswitch_aware_scheduler import exceptions

__all__ = ['SdkClient', 'pages']

#: Most pages of one list: ten million instances.
_MAX_PAGES = 10000


class SdkClient(http.Client):
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


def pages(client, kind, path, read, query=None, repeats=False, **arguments):
    """Yield a list page by page: {id of an item: what ``read`` makes of it}.

    :param client: SdkClient
    :param kind: key of the items in an answer
    :param read: callable, item -> what is to be yielded of it
    :param query: parameters of each request
    :param repeats: whether items may come again; a page that has nothing new
        is the last one then, whatever the service says
    :param arguments: of :meth:`.Client.json`
    :raises TelemetryError: when the list cannot be read to its end
    """
    query, seen = dict(query or {}), set()

    def check(answer):
        items = answer[kind]
        ids = [item['id'] for item in items]
        if len(set(ids)) < len(ids) and not repeats:
            raise ValueError(f'the same of {kind} twice')
        return dict(zip(ids, map(read, items))), any(
            link['rel'] == 'next'
            for link in answer.get(f'{kind}_links') or ())

    for number in range(1, _MAX_PAGES + 1):
        (page, more), _ = client.json(
            f'page {number} of {kind}', 'GET', path, f'a page of {kind}',
            check, params=query, **arguments)
        new = page.keys() - seen
        if more and page and not new and not repeats:
            raise exceptions.TelemetryError(
                f'telemetry {client.name}: seen the same of {kind} on two '
                f'pages, wanted other ones on each')
        yield page
        if not more or not new:
            return
        seen |= new
        query['marker'] = list(page)[-1]
    raise exceptions.TelemetryError(
        f'telemetry {client.name}: {kind}: seen more than {_MAX_PAGES} '
        f'pages; expected fewer')
