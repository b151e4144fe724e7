"""A process that commits as fast as it can until it is killed, and prints what was acknowledged.

python -m tests.catalog.killed LOCATION REALM WRITERS
"""

import asyncio
import sys

from naksha.catalog.backends import open_backend
from naksha.testing.catalog.suite_commits import committed_by, committer_on


async def main(location: str, realm: str, writers: int) -> None:
    committer = await committer_on(await open_backend(location), realm)

    async def write(number: int) -> None:
        while True:
            count = await committed_by(committer, f"w{number}")
            sys.stdout.write(f"{number} {count}\n")
            sys.stdout.flush()

    await asyncio.gather(*(write(number) for number in range(writers)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
