# SPDX-License-Identifier: Apache-2.0
"""A client for services that openstacksdk finds.

openstacksdk finds the URL of a service and its API versions. Requests use
:class:`.Client`, with its limits, rate and retries. This module only
implements the paging that is common to the APIs.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import typing

from vswitch_aware_scheduler.clients import http

__all__ = ['SdkClient', 'pages']

#: Maximum number of pages of one list: ten million instances.
_MAX_PAGES = 10000


class SdkClient(http.Client):
    """A Client that uses openstacksdk to find the service."""

    @property
    def name(self) -> str:
        """Name of the service, for messages."""
        return self._source

    def __enter__(self) -> typing.Self:
        super().__enter__()
        # Imported here, because it is an extra and slow to import.
        from openstack import connection
        from openstack import exceptions as sdk_exceptions
        self.no_connection += (sdk_exceptions.SDKException,)
        options = self.adapter_options()
        kind = self._service_type
        sdk_connection = connection.Connection(
            session=self.session, region_name=options['region_name'],
            **{f'{kind}_interface': options['interface'],
               f'{kind}_endpoint_override': options['endpoint_override']})
        # This requests the available versions.
        self.adapter = self.attempt(
            'versions', f'the {kind} API',
            lambda: getattr(sdk_connection, kind))
        return self


def pages(client: SdkClient, kind: str, path: str,
          read: Callable[[typing.Any], typing.Any],
          query: Mapping[str, object] | None = None, repeats: bool = False,
          key: str = 'id', **arguments: typing.Any
          ) -> Iterator[dict[str, typing.Any]]:
    """Yield {id of an item: result of ``read``} for each page of a list.

    :param read: callable(item), returns the value for the item; it raises
        LookupError, TypeError or ValueError if the item is invalid
    :param query: {name: value}, parameters of each request
    :param repeats: whether items may occur again; a page without new items is
        then the last one, even if the service names a next page
    :raises TelemetryError: if the list cannot be read completely
    """
    query, ids_seen = dict(query or {}), set()

    def check(answer):
        items = answer[kind]
        ids = [item[key] for item in items]
        if len(set(ids)) < len(ids) and not repeats:
            raise ValueError(f'two {kind} with the same id')
        return dict(zip(ids, map(read, items))), any(
            link['rel'] == 'next'
            for link in answer.get(f'{kind}_links') or ())

    for number in range(1, _MAX_PAGES + 1):
        (page, has_next), _ = client.json(
            f'page {number} of {kind}', 'GET', path, f'a page of {kind}',
            check, params=query, **arguments)
        new = page.keys() - ids_seen
        if has_next and page and not new and not repeats:
            raise client.failure(kind, 'the same ids on two pages',
                                 'different ids')
        yield page
        if not has_next or not new:
            return
        ids_seen |= new
        query['marker'] = list(page)[-1]
    raise client.failure(kind, f'more than {_MAX_PAGES} pages', 'fewer')
