# SPDX-License-Identifier: Apache-2.0
"""As much of Neutron as Nova asks of it for instances without networks."""

import json


def application(environ, start_response):
    """Answer every list with nothing in it, and else that nothing is there."""
    path = environ['PATH_INFO'].rstrip('/')
    if not path:
        status, body = '200 OK', {'versions': [{
            'id': 'v2.0', 'status': 'CURRENT', 'links': [{
                'rel': 'self',
                'href': f'http://{environ["HTTP_HOST"]}/v2.0/'}]}]}
    elif path.endswith('/v2.0'):
        status, body = '200 OK', {'resources': []}
    elif environ['REQUEST_METHOD'] == 'GET' and path.count('/') == 2:
        name = path.rpartition('/')[2].replace('.json', '')
        status, body = '200 OK', {name.replace('-', '_'): []}
    else:
        status, body = '404 Not Found', {'NeutronError': {
            'type': 'NotFound', 'message': path, 'detail': ''}}
    data = json.dumps(body).encode()
    start_response(status, [('Content-Type', 'application/json'),
                            ('Content-Length', str(len(data)))])
    return [data]
