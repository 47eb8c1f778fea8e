"""One HTTP request to a controller inside a namespace.

usage: rest.py METHOD URL [BODY]

Prints the status and, on the lines after it, the reply.
"""

import sys
import urllib.error
import urllib.request


def main(method, url, body=None):
    request = urllib.request.Request(url, method=method, data=body.encode() if body else None)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            print(answer.status)
            print(answer.read().decode())
    except urllib.error.HTTPError as error:
        print(error.code)
        print(error.read().decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
