"""/v1 about queues and everything that is set: figures, settings, dead jobs, schedules, limits, workers, nodes."""
from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Query, Response

from holdfast.client.errors import BadRequest, NoJob
from holdfast.client.figures import QueueFigures
from holdfast.client.queue import AsyncQueue
from holdfast.client.resp import to_bytes
from holdfast.gateway import answers, models
from holdfast.gateway.asking import the_queue
from holdfast.gateway.models import Key, Seconds
from holdfast.gateway.paths import Name
from holdfast.gateway.problems import MEDIA, tables

router = APIRouter(prefix="/v1", tags=["queues"], responses=MEDIA)
Asking = Annotated[AsyncQueue, Depends(the_queue)]
Setting = bool | int | float | models.Text


@router.get("/queues")
async def queues(asking: Asking) -> answers.Queues:
    """All queues with their figures, summed over the nodes that answered; the others are named."""
    found = await asking.figures()
    return answers.Queues(queues=[answers.queue_figures(each) for each in found.queues], silent=list(found.silent))


async def figures(asking: AsyncQueue, name: str) -> tuple[list[dict[str, Any]], list[str]]:
    """For the console: rows by the names of CLUSTER QSTAT, and the nodes that did not answer."""
    found = await asking.figures(name)
    return [row_of(each) for each in found.queues], list(found.silent)


def row_of(each: QueueFigures) -> dict[str, Any]:
    """Figures of one queue by their names. A name that is no text is shown with backslashes, which could be those of
    another; `name-hex` has its bytes."""
    name = to_bytes(each.name)
    row = {**each.told(), "name": models.plain(name)}
    return row if name == row["name"].encode() else {**row, "name-hex": name.hex()}


def name_of(row: dict[str, Any]) -> bytes:
    return bytes.fromhex(row["name-hex"]) if "name-hex" in row else str(row.get("name", "")).encode()


async def totals(asking: AsyncQueue, name: str) -> list[dict[str, Any]]:
    return (await figures(asking, name))[0]


@router.get("/queues/{queue}")
async def one(asking: Asking, queue: Name) -> answers.Queue:
    """One queue: figures of all nodes, and settings."""
    found = (await asking.figures(queue)).queues
    return answers.Queue(queue=queue, figures=answers.queue_figures(found[0]) if found else None,
                         settings=await set_for(asking, queue))


async def set_for(asking: AsyncQueue, queue: str) -> dict[str, Any]:
    return {name: models.plain(value) for name, value in (await asking.settings(queue)).items()}


@router.patch("/queues/{queue}")
async def configure(asking: Asking, queue: Name, changes: Annotated[dict[Key, Setting], Body(max_length=32)]) -> (
    answers.QueueSettings
):
    """Set something for a queue, at all nodes: maxlen, totalmaxlen, rate, concurrency, attempts, …"""
    if not changes:
        raise BadRequest("say what to set")
    await asking.configure(queue, **changes)
    return answers.QueueSettings(settings=await set_for(asking, queue))


@router.post("/queues/{queue}/pause")
async def pause(asking: Asking, queue: Name, said: models.Pause) -> answers.PauseState:
    """Pause a queue at all nodes, for producers (in), workers (out) or all, for some time or until `none`."""
    return answers.PauseState.model_validate({"paused": await asking.pause(queue, said.how, seconds=said.seconds)})


@router.post("/queues/{queue}/flush")
async def flush(asking: Asking, queue: Name) -> models.Count:
    """End all jobs of a queue."""
    return models.Count(count=await asking.flush(queue))


@router.get("/queues/{queue}/peek")
async def peek(asking: Asking, queue: Name, count: Annotated[int, Query(ge=-1000, le=1000)] = 10) -> (
    answers.PeekedMany
):
    """Look at the next jobs without taking them; a negative count looks from the newest end."""
    found = await asking.peek(queue, count)
    return answers.PeekedMany(jobs=[answers.Peeked(id=each.id, **models.body_fields(each.body)) for each in found])


def wanted(said: models.DeadOnes) -> Any:
    return said.model_dump(exclude_none=True, exclude={"ids"})


@router.get("/dead")
async def dead(
    asking: Asking, queue: Annotated[Key | None, Query()] = None, cause: Annotated[Key | None, Query()] = None,
    error: Annotated[Key | None, Query()] = None, older: Annotated[Seconds | None, Query()] = None,
    count: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> answers.DeadJobs:
    """Jobs that nobody will try again unless told to."""
    said = models.DeadOnes(queue=queue, cause=cause, error=error, older=older)
    found = await asking.dead(count=count, **wanted(said))
    return answers.DeadJobs(jobs=[
        answers.DeadJob(**{name: models.plain(getattr(each, name)) for name in each.__dataclass_fields__})
        for each in found
    ])


@router.post("/dead/retry")
async def retry(asking: Asking, said: models.DeadOnes) -> models.Count:
    """Queue dead jobs again: those named, or those that fit."""
    return models.Count(count=await asking.retry_dead(*said.ids, **wanted(said)))


@router.post("/dead/delete")
async def delete(asking: Asking, said: models.DeadOnes) -> models.Count:
    """End dead jobs for good: those named, or those that fit."""
    return models.Count(count=await asking.delete_dead(*said.ids, **wanted(said)))


@router.get("/cron")
async def schedules(asking: Asking) -> answers.Schedules:
    """Jobs that are added again and again."""
    return answers.Schedules(schedules=[answers.schedule(each) for each in await asking.schedules()])


@router.put("/cron/{name}", status_code=204)
async def schedule(asking: Asking, name: Name, said: models.Schedule) -> Response:
    """Add a job by a schedule, or change one."""
    await asking.schedule(
        name, said.schedule, said.queue, said.content(), zone=said.zone, missed=said.missed, **said.words()
    )
    return Response(status_code=204)


@router.delete("/cron/{name}", status_code=204)
async def unschedule(asking: Asking, name: Name) -> Response:
    """Give up a schedule. Jobs it has added stay."""
    if not await asking.unschedule(name):
        raise NoJob("there is no schedule of that name")
    return Response(status_code=204)


@router.get("/domains")
async def domains(asking: Asking, cursor: Annotated[str, Query(max_length=1100)] = "0",
                  count: Annotated[int, Query(ge=1, le=1000)] = 100) -> answers.Domains:
    """Domains that were seen or set, with their limits and when the next job may run."""
    reply = await asking.call("DOMAIN", "LIST", "CURSOR", cursor, "COUNT", count)
    assert isinstance(reply, list)
    following, page = reply
    assert isinstance(page, list)
    return answers.Domains(cursor=models.plain(following), domains=[answers.domain(each) for each in page])


@router.put("/domains/{domain}", status_code=204)
async def limit(asking: Asking, domain: Name, said: models.Limit) -> Response:
    """Limit a domain, or all that fit a pattern such as *.example.com."""
    await asking.limit(domain, said.rate, burst=said.burst, concurrency=said.concurrency, adapt=said.adapt)
    return Response(status_code=204)


@router.delete("/domains/{domain}", status_code=204)
async def unlimit(asking: Asking, domain: Name) -> Response:
    """Lift a limit."""
    await asking.unlimit(domain)
    return Response(status_code=204)


@router.get("/workers")
async def workers(asking: Asking) -> answers.Workers:
    """Workers that said they are there."""
    return answers.Workers(workers=[answers.worker(each) for each in await asking.workers()])


@router.get("/cluster")
async def cluster(asking: Asking) -> answers.Cluster:
    """The nodes as the one that was asked sees them, who is away and how many jobs wait for it, and more facts."""
    info = await asking.call("CLUSTER", "INFO")
    return answers.cluster(await asking.nodes(), await asking.away(), models.plain(info))


@router.get("/info")
async def info(asking: Asking, section: Annotated[str, Query(max_length=32, pattern="^[a-z]*$")] = "default") -> dict[
    str, str]:
    """What one node knows of itself."""
    text = models.plain(await asking.call("INFO", section))
    return {name: value for name, _, value in (line.partition(":") for line in text.splitlines()) if value}


@router.get("/history")
async def history(
    asking: Asking, cursor: Annotated[str, Query(max_length=200)] = "first",
    count: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> answers.History:
    """What happened to jobs, from a cursor on: the records of one node, as objects."""
    from holdfast import history as reading

    reply = await asking.call("HISTORY", "READ", cursor, "COUNT", count)
    assert isinstance(reply, list)
    following, data = reply
    assert isinstance(data, bytes)
    with tables():
        rows = reading.decode(data).to_pylist() if data else []
    return answers.History(cursor=models.plain(following), records=[answers.record(row) for row in rows])
