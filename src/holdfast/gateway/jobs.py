"""/v1 about jobs: add, take, answer for them, look at them, wait for them."""
from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from holdfast.client.adding import AddOptions
from holdfast.client.delivery import entry_of
from holdfast.client.errors import BadRequest, NoJob
from holdfast.client.jobs import AsyncJob
from holdfast.client.queue import AsyncQueue
from holdfast.client.values import AddedId, jobs_page
from holdfast.core import states
from holdfast.gateway import answers, models
from holdfast.gateway.asking import the_queue, while_there
from holdfast.gateway.models import Key
from holdfast.gateway.paths import Name
from holdfast.gateway.problems import MEDIA

router = APIRouter(prefix="/v1", tags=["jobs"], responses=MEDIA)
Asking = Annotated[AsyncQueue, Depends(the_queue)]
STATES = f"any of {', '.join(word.decode() for word in states.ABOUT)}, or a state of Disque's; several may be named"
JobId = Annotated[str, Path(min_length=48, max_length=48, pattern="^DI[0-9a-f]{44}SQ$")]


def counted(options: AddOptions) -> AddOptions:
    """The same, and the answer says how many copies there are."""
    options["say_copies"] = True
    return options


def copies_of(added: str) -> int:
    return added.copies if isinstance(added, AddedId) else 0


def held(queue: AsyncQueue, job_id: str, token: str = "") -> AsyncJob:
    """A job that a caller has, made again from what it tells of it."""
    return AsyncJob(entry_of(job_id, token), queue)


def taken(job: AsyncJob) -> models.Taken:
    return models.Taken(
        id=job.id, queue=models.plain(job.queue), **models.body_fields(job.body), token=job.token, attempt=job.attempt,
        priority=job.priority, nacks=job.nacks, additional_deliveries=job.additional_deliveries,
        headers=models.plain(job.headers), keys=models.plain(job.keys),
    )


@router.post("/queues/{queue}/jobs", status_code=201)
async def add(asking: Asking, queue: Name, new: models.NewJob) -> models.Added:
    """Add a job. It is answered when the job is where it was asked to be."""
    added = await asking.add(queue, new.content(), **counted(new.words()))
    return models.Added(id=added, copies=copies_of(added))


@router.post("/queues/{queue}/jobs/many", status_code=201)
async def add_many(asking: Asking, queue: Name, new: models.NewJobs) -> models.AddedMany:
    """Add many jobs with the same options, all or none of them."""
    ids = await asking.add_many(queue, [each.content() for each in new.jobs], **counted(new.words()))
    return models.AddedMany(ids=ids, copies=min(map(copies_of, ids), default=0))


@router.post("/take")
async def take(asking: Asking, request: Request, wanted: models.Take) -> models.TakenMany:
    """Take jobs of the first queue that has some; wait for them if none is there."""
    taking = asking.take(*wanted.queues, count=wanted.count, timeout=wanted.timeout, lease=wanted.lease)
    jobs = await while_there(request, taking)
    return models.TakenMany(jobs=[taken(job) for job in jobs])


@router.post("/jobs/{job_id}/done")
async def done(asking: Asking, job_id: JobId, said: models.Done) -> models.Count:
    """The work is done. With a token it is refused (409) if the job is somebody else's by now."""
    return models.Count(count=await asking.done(held(asking, job_id, said.token), result=said.content()))


@router.post("/jobs/{job_id}/fail")
async def fail(asking: Asking, job_id: JobId, said: models.Fail) -> models.Count:
    """The work failed: the job waits for its next attempt, or is dead."""
    return models.Count(count=await asking.fail(
        held(asking, job_id, said.token), error=said.error, after=said.after, dead=said.dead, throttled=said.throttled
    ))


@router.post("/jobs/{job_id}/release")
async def release(asking: Asking, job_id: JobId, said: models.Release) -> models.Count:
    """Give a job back without using up an attempt."""
    return models.Count(count=await asking.release(held(asking, job_id, said.token), after=said.after))


@router.post("/jobs/{job_id}/extend")
async def extend(asking: Asking, job_id: JobId, said: models.Extend) -> answers.Lease:
    """Begin the lease again, with so many seconds."""
    return answers.Lease(seconds=await asking.extend(held(asking, job_id, said.token), said.seconds))


@router.post("/jobs/{job_id}/progress")
async def progress(asking: Asking, job_id: JobId, said: models.Progress) -> answers.GoOn:
    """Say how far the work is. The answer says whether to go on."""
    return answers.GoOn(go_on=await asking.progress(held(asking, job_id, said.token), said.fraction, said.text))


@router.post("/jobs/{job_id}/cancel")
async def cancel(asking: Asking, job_id: JobId) -> answers.Cancelled:
    """Don't do this job: it is ended if it waits, and its worker is asked to stop if it has one."""
    return answers.Cancelled(outcome=await asking.cancel(job_id))


@router.post("/keepalive")
async def keepalive(asking: Asking, said: models.Keep) -> answers.Kept:
    """Extend many leases: for each, ok, cancelled (please stop) or lost."""
    jobs = [held(asking, each.id, each.token) for each in said.jobs]
    return answers.Kept(outcomes=list(await asking.keep(jobs, said.seconds)))


@router.post("/wait")
async def wait(asking: Asking, request: Request, said: models.Wait) -> answers.WaitedMany:
    """Wait until jobs have ended, and say what became of each; also their results."""
    waiting = asking.wait(*said.ids, timeout=said.timeout or 0.001, any=said.any)
    found = await while_there(request, waiting)
    return answers.WaitedMany(jobs=[answers.waited(each) for each in found])


@router.get("/jobs/{job_id}")
async def show(asking: Asking, job_id: JobId) -> answers.Job:
    """Everything a node knows about a job."""
    found = await asking.show(job_id)
    if found is None:
        raise NoJob("no node that was asked knows this job")
    return answers.job(found)


@router.get("/jobs/{job_id}/explain")
async def explain(asking: Asking, job_id: JobId) -> answers.Explanation:
    """Why a job does not run now, and why it ran more than once."""
    found = await asking.explain(job_id)
    if found is None:
        raise NoJob("no node that was asked knows this job")
    return answers.Explanation(
        id=found.id, status=found.state, summary=models.plain(found.summary),
        reasons=[answers.Reason(code=each.code, words=models.plain(each.words), ms_until=each.ms_until)
                 for each in found.reasons],
        history=[models.plain(line) for line in found.history],
    )


@router.patch("/jobs/{job_id}", response_model_exclude_none=True)
async def change(asking: Asking, job_id: JobId, said: models.Change) -> answers.Changed:
    """Change the priority or the queue of a job that waits, or run a delayed one now."""
    done: dict[str, bool] = {}
    if said.priority is not None:
        done["priority"] = await asking.prioritize(job_id, said.priority)
    if said.queue is not None:
        done["queue"] = await asking.move(job_id, said.queue)
    if said.run_now:
        done["run_now"] = await asking.run_now(job_id)
    if not done:
        raise BadRequest("say what to change: priority, queue or run_now")
    return answers.Changed(**done)


@router.delete("/jobs/{job_id}", status_code=204)
async def delete(asking: Asking, job_id: JobId) -> Response:
    """End a job everywhere, whatever its state."""
    if await asking.done(job_id) == 0:
        raise NoJob("no node that was asked knows this job")
    return Response(status_code=204)


@router.get("/jobs")
async def jobs(
    asking: Asking, queue: Annotated[Key | None, Query()] = None,
    state: Annotated[list[str] | None, Query(max_length=len(states.ABOUT), description=STATES)] = None,
    cursor: Annotated[str, Query(max_length=100)] = "0", count: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> answers.JobPage:
    """Jobs at one node, page by page: the cursor of an answer is that of the next question; 0 is the end."""
    words: list[str | int] = ["JSCAN", cursor, "COUNT", count, "REPLY", "all"]
    if queue is not None:
        words += ["QUEUE", queue]
    for each in state or []:
        words += ["STATE", each]
    following, page = jobs_page(await asking.call(*words))
    return answers.JobPage(cursor=following, jobs=[answers.job(each) for each in page])
