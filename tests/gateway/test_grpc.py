"""gRPC: unary calls, the Work stream with its keepalive, health, reflection, and rubbish."""
from __future__ import annotations

import queue as threads
import random
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.gateway.running import Gateway
from tests.proc.harness import Node, until

from holdfast.gateway.proto import messages as pb
from holdfast.gateway.proto import services


@pytest.fixture
def channel(gateway: Gateway) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{gateway.grpc_port}") as channel:
        yield channel


@pytest.fixture
def stub(channel: grpc.Channel) -> Any:
    return services.QueueStub(channel)


class Worker:
    """One Work stream, from the worker's side."""

    def __init__(self, stub: Any, queue: str, credit: int, lease: float = 0.0) -> None:
        self.requests: threads.Queue[Any] = threads.Queue()
        self.say(begin=pb.Begin(queues=[queue], credit=credit, lease=lease))
        self.replies = stub.Work(iter(self.requests.get, None))

    def say(self, **what: Any) -> None:
        self.requests.put(pb.WorkRequest(**what))

    def hear(self) -> Any:
        return next(self.replies)

    def close(self) -> None:
        self.requests.put(None)


def held(job: Any) -> Any:
    return pb.Held(id=job.id, token=job.token)


def test_unary_calls(stub: Any, queue: str) -> None:
    job = stub.Add(pb.AddRequest(queue=queue, body=b"\xff", options=pb.Options(priority=3, headers={"a": "b"}))).id
    [taken] = stub.Take(pb.TakeRequest(queues=[queue], count=5, lease=30)).jobs
    assert (taken.id, taken.body, taken.priority, dict(taken.headers)) == (job, b"\xff", 3, {"a": "b"})
    assert list(stub.KeepAlive(pb.KeepAliveRequest(seconds=30, jobs=[held(taken)])).outcomes) == ["ok"]
    assert stub.Progress(pb.ProgressRequest(job=held(taken), fraction=0.5)).go_on
    assert stub.Done(pb.DoneRequest(job=held(taken), result=b"r")).count == 1
    [waited] = stub.Wait(pb.WaitRequest(ids=[job], timeout=5)).jobs
    assert (waited.state, waited.result) == ("done", b"r")
    ids = stub.AddMany(pb.AddManyRequest(queue=queue, bodies=[b"1", b"2"])).ids
    assert len(set(ids)) == 2
    assert stub.Explain(pb.JobRequest(id=ids[0])).state == "queued"
    assert stub.Cancel(pb.JobRequest(id=ids[0])).outcome == "cancelled"


def test_errors_are_statuses_with_codes(stub: Any, queue: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        stub.Add(pb.AddRequest(queue=queue, body=b"x", options=pb.Options(priority=99)))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    job = stub.Add(pb.AddRequest(queue=queue, body=b"x", options=pb.Options(unique="k"))).id
    with pytest.raises(grpc.RpcError) as caught:
        stub.Add(pb.AddRequest(queue=queue, body=b"x", options=pb.Options(unique="k", on_duplicate="reject")))
    assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS and job in caught.value.details()
    assert ("holdfast-code", "DUPLICATE") in [(k, v) for k, v in caught.value.trailing_metadata()]


def test_a_stream_gets_what_it_can_use_and_no_more(stub: Any, queue: str) -> None:
    stub.AddMany(pb.AddManyRequest(queue=queue, bodies=[b"%d" % i for i in range(5)]))
    worker = Worker(stub, queue, credit=2)
    first, second = worker.hear().job, worker.hear().job
    assert (first.body, second.body) == (b"0", b"1")
    assert len(stub.Take(pb.TakeRequest(queues=[queue], count=1)).jobs) == 1  # the third is still there for others
    worker.say(done=pb.DoneRequest(job=held(first)))
    assert worker.hear().settled.ok
    worker.say(fail=pb.FailRequest(job=held(second), error="boom", dead=True))
    assert worker.hear().settled.ok
    worker.say(more=1)
    assert worker.hear().job.body == b"3"
    worker.close()


def test_leases_are_kept_as_long_as_the_stream_is_and_then_given_back(stub: Any, queue: str) -> None:
    job = stub.Add(pb.AddRequest(queue=queue, body=b"long", options=pb.Options(retry=1))).id
    worker = Worker(stub, queue, credit=1, lease=1.0)
    assert worker.hear().job.id == job
    [again] = [stub.Take(pb.TakeRequest(queues=[queue], timeout=3)).jobs]
    assert list(again) == [], "for three times its lease nobody else got it"
    worker.close()
    [back] = stub.Take(pb.TakeRequest(queues=[queue], timeout=10)).jobs
    assert back.id == job


def test_a_cancelled_job_is_told_in_the_stream(stub: Any, queue: str) -> None:
    job = stub.Add(pb.AddRequest(queue=queue, body=b"x")).id
    worker = Worker(stub, queue, credit=1, lease=1.0)
    assert worker.hear().job.id == job
    assert stub.Cancel(pb.JobRequest(id=job)).outcome == "asked"
    assert worker.hear().cancelled == job
    worker.close()


def test_a_stream_that_begins_wrongly_is_told(stub: Any) -> None:
    requests: threads.Queue[Any] = threads.Queue()
    requests.put(pb.WorkRequest(more=1))
    with pytest.raises(grpc.RpcError) as caught:
        next(stub.Work(iter(requests.get, None)))
    assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    requests.put(None)


def test_health_and_reflection(channel: grpc.Channel) -> None:
    checks = health_pb2_grpc.HealthStub(channel)
    assert checks.Check(health_pb2.HealthCheckRequest(service="holdfast.v1.Queue")).status == 1
    told = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
        iter([reflection_pb2.ServerReflectionRequest(list_services="")])
    )
    assert "holdfast.v1.Queue" in {each.name for each in next(told).list_services_response.service}


def test_rubbish_ends_a_stream_and_what_it_held_is_given_back(channel: grpc.Channel, stub: Any, queue: str) -> None:
    rubbish = b"\xff\xff\xff"
    begin = pb.WorkRequest(begin=pb.Begin(queues=[queue], credit=1, lease=30.0)).SerializeToString()
    work = channel.stream_stream("/holdfast.v1.Queue/Work", response_deserializer=pb.WorkReply.FromString)
    job = stub.Add(pb.AddRequest(queue=queue, body=b"x")).id
    for is_begun in (False, True):
        requests: threads.Queue[bytes | None] = threads.Queue()
        if is_begun:
            requests.put(begin)
        answers = work(iter(requests.get, None))
        if is_begun:
            assert next(answers).job.id == job
        requests.put(rubbish)
        with pytest.raises(grpc.RpcError) as caught:
            next(answers)
        requests.put(None)
        assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    [back] = stub.Take(pb.TakeRequest(queues=[queue], timeout=10)).jobs
    assert back.id == job and back.attempt == 1, "given back at once and without blame, not when its lease was over"


def test_rubbish_is_refused_and_harms_nobody(channel: grpc.Channel, stub: Any, queue: str, node: Node) -> None:
    """Random bytes as messages to every method: nothing but refusals, and the gateway goes on."""
    chance = random.Random(7)
    methods = [each.name for each in pb.DESCRIPTOR.services_by_name["Queue"].methods if each.name != "Work"]
    allowed = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED,
               grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.FAILED_PRECONDITION,
               grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED}
    refused = 0
    for i in range(300):
        call = channel.unary_unary(f"/holdfast.v1.Queue/{methods[i % len(methods)]}")
        try:
            call(chance.randbytes(chance.randrange(60)), timeout=2)
        except grpc.RpcError as error:
            assert error.code() in allowed, (error.code(), error.details())
            refused += "these bytes are no" in error.details()
    assert refused > 100, "most random bytes are no message"
    stub.Add(pb.AddRequest(queue=queue, body=b"fine"))
    with node.client() as client:
        assert until(lambda: client.ask("QLEN", queue)) == 1
