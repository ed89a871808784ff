"""The REST interface: the peer's endpoints, /readiness, and ours below /api/v1; OpenAPI at /docs, which works offline.

api.app(desk, settings)     a FastAPI app; `server` runs it in the driver
"""

from __future__ import annotations

from typing import Annotated

from fastapi import FastAPI, Query
from fastapi.responses import JSONResponse, Response
from fastapi_offline import FastAPIOffline

import almanac
from almanac import desk
from almanac.api import guard, peer, problems, routes
from almanac.settings import Settings


def app(at: desk.Desk, settings: Settings, page: bool = False) -> FastAPI:
    """`page`: the admin page is mounted on it too, and guards its own paths."""
    made = FastAPIOffline(
        title="Almanac", version=almanac.__version__, summary="Scheduled messages for Kafka",
        description=__doc__.partition("\n")[0],
    )  # fmt: skip
    made.state.desk = at
    problems.handle(made)
    made.include_router(routes.router)
    _peers(made, at, settings)
    made.add_middleware(guard.Guard, settings=settings, page=page)
    return made


def _peers(made: FastAPI, at: desk.Desk, settings: Settings) -> None:
    @made.get("/liveness", tags=["peer"])
    def liveness() -> Response:
        """200 while the program runs."""
        return Response(status_code=200)

    @made.get("/readiness", tags=["scheduler"])
    def readiness() -> Response:
        """200 while every wheel fires (or is paused), else 503 and what is missing."""
        why = at.ready()
        return JSONResponse(
            {"status": "ready" if why is None else "not ready", "why": why}, 200 if why is None else 503
        )

    @made.get("/info", tags=["peer"])
    def info() -> Response:
        """What the peer tells of itself."""
        return Response(peer.info(settings), media_type="application/json")

    @made.get("/schedules", tags=["peer"])
    def schedules(limit: Annotated[int, Query(ge=1, le=100_000)] = peer.MOST) -> Response:
        """The next schedules by due time, as the peer lists them."""
        return Response(peer.schedules(at.next(limit)), media_type="application/json")
