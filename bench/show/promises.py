"""The list of promises with times: what a job or a call waits for at most, whatever happens to the nodes.

Each line is a test on real processes, which prints its figure and asserts its bound; the faults by number are the tests
that were red when the fault was found.
"""
from __future__ import annotations

import functools

from bench.show.lines import Answer, Line, simulated, tests

FOLDER = "tests/proc/promises"
SWARM_MINUTES = 30
FIGURE = r"(?m)^figure: (.*)$"

PROMISES: list[tuple[str, str, str, str]] = [
    # key, what is promised, its bound, the tests below FOLDER
    ("handed-out", "a job is handed out to a worker that waits at another node, when calm", "100 ms",
     "test_reach.py::test_a_job_meets_a_worker_that_waits_anywhere"),
    ("crashes", "all jobs are queued after a kill -9, however often and in whatever order", "2 s from the links",
     "test_reach.py::test_crashes_one_after_the_other_hide_no_job"),
    ("dead-waiting", "what waited at a node that died is handed out elsewhere", "5 s from when it counts as failed",
     "test_reach.py::test_a_node_that_dies_takes_no_waiting_job_along"),
    ("dead-leased", "what workers of a dead node have stays theirs, and comes back after that", "5 s from its end",
     "test_reach.py::test_what_a_dead_node_had_out_is_out"),
    ("restarts", "restarts put a delay and a lease off by nothing", "due, or 2 s from the links",
     "test_reach.py::test_restarts_put_nothing_off"),
    ("clocks", "a wrong clock at a restart ends no lease", "5 s from its end",
     "test_reach.py::test_a_wrong_clock_at_a_restart_ends_no_lease"),
    ("add-beside-slow", "an add that names no number of copies, whatever a third node does", "250 ms",
     "test_slow_nodes.py::test_an_add_waits_for_no_third_node"),
    ("add-beside-frozen", "the same after the first, which found out that a node is frozen", "50 ms",
     "test_slow_nodes.py::test_only_the_first_adds_find_out_that_a_node_is_frozen"),
    ("add-explicit", "REPLICATE 3 while the third node restarts; one that cannot be had is refused", "1 s; 250 ms",
     "test_slow_nodes.py::test_a_number_of_copies_is_waited_for_while_a_node_restarts"),
    ("calls-of-threads", "99 of 100 calls of other threads while keyed adds of the same object wait", "10 ms",
     "test_slow_nodes.py::test_threads_go_on_beside_adds_that_wait"),
    ("calls-of-tasks", "99 of 100 calls of other tasks while keyed adds of the same object wait", "10 ms",
     "test_slow_nodes.py::test_tasks_go_on_beside_adds_that_wait"),
    ("frozen-thread", "a call to a frozen node is given up on, and the next one goes elsewhere", "4 s",
     "test_slow_nodes.py::test_a_call_to_the_frozen_node_is_given_up_on"),
    ("frozen-task", "the same for a task", "4 s",
     "test_slow_nodes.py::test_a_task_at_the_frozen_node_is_given_up_on"),
    ("figures", "jobs of a node that was killed are in the figures of queues; and in none, while it is away or back",
     "2 s; 0", "test_figures.py"),
    ("keys-told", "unique adds and groups after kill -9 of the node that decided about their keys", "1 s",
     "test_homes.py::test_keys_of_a_killed_home_are_decided_elsewhere"),
    ("keys-silent", "the same after SIGSTOP, with a node-timeout of 4 s", "5 s",
     "test_homes.py::test_keys_of_a_silent_home_are_decided_elsewhere"),
    ("keys-strangers", "the same with three dead members, and strangers in their place one after the other", "1 s",
     "test_homes.py::test_strangers_and_members_that_nobody_forgets_make_no_difference"),
    ("schedules", "each of 30 schedules of every second runs again after kill -9 of its owner", "2 s",
     "test_homes.py::test_every_schedule_has_an_owner"),
    ("newcomer", "a newcomer among three dead members reaches those that are alive", "5 s",
     "test_homes.py::test_the_dead_do_not_hide_the_living"),
    ("links", "copies at all three nodes after cuts of 1.5, 4, 9 and 20 s", "2 s",
     "test_links.py::test_links_are_back_soon_after_a_cut"),
    ("command-line", "a call of the command line", "150 ms", "test_command_line.py"),
]

SCENARIO = "tests/sim/cluster/test_scenarios.py::test_the_node_passes"
FAULTS: list[tuple[str, str, tuple[str, ...]]] = [
    # number, what was seen from outside, the tests that were red
    ("1a", "crashes one after the other hid jobs for RETRY, and EXPLAIN answered in a circle", (
        f"{SCENARIO}[crashes_one_after_the_other_hide_no_job]",
        f"{SCENARIO}[who_comes_back_does_not_wait_for_the_dead]",
        f"{SCENARIO}[what_explains_a_job_does_not_send_one_round_in_a_circle]",
        f"{SCENARIO}[what_was_given_back_elsewhere_is_not_out_after_a_restart]",
    )),
    ("1b", "a node that died took its waiting jobs along for RETRY", (
        f"{SCENARIO}[a_node_that_dies_does_not_take_its_waiting_jobs_along]",
        f"{SCENARIO}[a_job_with_a_key_does_not_wait_for_its_dead_home]",
    )),
    ("1c", "keyed jobs and schedules stood still for good after one node was replaced", (
        f"{SCENARIO}[keys_of_a_killed_home_are_decided_elsewhere_within_a_second]",
        f"{SCENARIO}[keys_of_a_silent_home_are_decided_elsewhere_after_node_timeout]",
        f"{SCENARIO}[a_newcomer_that_never_met_the_home_does_not_keep_its_keys]",
        f"{SCENARIO}[strangers_in_the_place_of_a_home_make_no_difference]",
        f"{SCENARIO}[a_stranger_that_comes_at_once_does_not_keep_the_keys]",
        f"{SCENARIO}[members_that_are_dead_for_long_make_no_difference]",
        f"{SCENARIO}[every_schedule_has_an_owner_within_a_second]",
    )),
    ("1d", "three dead members that nobody forgot hid the living from a newcomer", (
        f"{SCENARIO}[the_dead_do_not_hide_the_living]",
    )),
    ("2a", "adds of one client waited behind one that waits for the home of its key", (
        "tests/unit/client/test_waiting_calls.py",
    )),
    ("2b", "a frozen node made default adds at healthy ones wait, and an add to itself took six seconds", (
        f"{SCENARIO}[a_frozen_node_keeps_no_producer_waiting]", f"{SCENARIO}[two_nodes_of_which_one_is_frozen]",
        f"{SCENARIO}[only_the_first_adds_find_out_that_a_node_is_frozen]",
        "tests/unit/client/test_waiting_calls.py::"
        "test_an_add_at_a_stopped_node_is_given_up_on_after_seconds_not_after_its_own_timeout",
    )),
    ("2c", "REPLICATE 3 of three nodes was refused while one of them restarted", (
        f"{SCENARIO}[a_number_of_copies_is_waited_for_while_a_node_restarts]",
        "tests/unit/core/test_replicate.py::test_a_node_that_has_just_gone_counts_until_it_is_suspect",
        "tests/proc/cluster/test_02_replication.py::test_a_node_that_restarts_is_waited_for",
    )),
    ("2d", "after a cut links waited for TCP to try again", (
        f"{SCENARIO}[links_are_back_soon_after_a_cut_of_any_length]",
        "tests/unit/shell/test_bus.py::test_a_link_that_says_nothing_is_replaced",
    )),
    ("3", "a clock ahead at a restart ended leases", (
        f"{SCENARIO}[a_clock_ahead_at_a_restart_ends_no_lease]",
    )),
    ("4a", "a crash, a restart and a power cut lose what was there",
     ("tests/unit/journal/test_damage.py::test_what_was_loaded_after_a_crash_survives_a_power_cut",
      "tests/proc/test_power_cuts.py")),
    ("4b", "the same, cut inside a batch, needs an operator",
     ("tests/proc/test_power_cuts.py::test_a_crash_a_restart_and_a_power_cut_lose_nothing_that_was_back",)),
    ("4c", "a newest segment without its header stops the start",
     ("tests/unit/journal/test_damage.py::test_a_newest_segment_without_its_header_is_read_all_the_same",
      "tests/unit/journal/test_damage.py::test_a_newest_segment_of_nothing_but_zeros_is_left_out")),
    ("4d", "a node whose journal was mended queues what others know to be over",
     ("tests/unit/journal/test_inspect.py::test_a_repaired_journal_has_the_node_ask_before_it_queues_anything",
      "tests/proc/test_damaged_disks.py::test_damage_at_one_of_three_nodes_loses_nothing_and_needs_nobody")),
    ("4e", "without a header there is nothing to go by for repair",
     ("tests/proc/test_damaged_disks.py::test_a_node_that_is_alone_stops_and_says_what_to_do",)),
    ("4f", "damage in the last synced batch counts as a torn end",
     ("tests/unit/journal/test_damage.py::test_damage_in_the_last_synced_batch_stops_a_node_that_is_alone",
      "tests/unit/journal/test_damage.py::test_a_flipped_bit_is_no_torn_end_though_nothing_says_it_was_synced")),
    ("4g", "a node whose disk fails to sync keeps its place, and says nothing of what to do",
     ("tests/proc/test_damaged_disks.py::test_a_failed_sync_makes_a_node_give_up_its_place",)),
    ("5", "a NOREPL that timed out was raised as Refused, though the job can be handed out", (
        "tests/unit/client/test_errors.py",
    )),
    ("6", "maxmemory 1 was refused, and a leaving node kept what it held from those that asked there", (
        f"{SCENARIO}[a_leaving_node_hands_out_what_it_holds]", "tests/unit/core/test_config.py",
    )),
    ("B7", "a second holdfast up beside the first dies", (
        "tests/local/test_up.py::test_two_beside_each_other_where_ports_are_given",)),
    ("B8", "HTTP names the same fields differently, numbers are strings, answers are untyped", (
        "tests/gateway/test_v1.py::test_a_job_has_the_same_fields_wherever_it_is_shown",
        "tests/gateway/test_v1.py::test_figures_have_the_same_names_in_every_answer",
        "tests/gateway/test_v1.py::test_what_workers_count_is_a_number",
        "tests/gateway/test_v1.py::test_every_answer_is_described_by_an_object_with_types",
        "tests/docs/test_written_pages.py")),
    ("B9", "a paused queue looks like any other", (
        "tests/unit/cli/test_verbs.py::test_a_queue_is_paused_seen_and_resumed",
        "tests/deploy/test_metrics.py::test_a_paused_queue_can_be_seen")),
    ("B10", "the alert for a node that is down never fires with the chart's annotations", (
        "tests/deploy/test_alerts.py",)),
    ("CLI", "three ways to say where, no verbs, no help for a mistyped word", (
        "tests/unit/cli/test_commands.py", "tests/unit/cli/test_verbs.py", "tests/unit/client/test_doors.py")),
    ("states", "SHOW says active of everything", ("tests/unit/core/test_status.py",)),
    ("7-B3", "a task that returns too much runs again and dies with an empty error", (
        "tests/unit/tasks/test_tasks.py::test_a_result_that_cannot_be_kept_ends_the_job_once",
        "tests/worker/test_health.py::test_what_the_node_does_not_take_is_not_done_again")),
    ("7-B4", "a second batch of the same name within the hour: nothing complains", (
        "tests/conformance/test_transcripts.py", "-k", "batches")),
    ("7-B5", "Celery bodies are imported as they were, and killed at once", (
        "tests/pipeline/test_importers.py", "-k", "celery")),
    ("7-B6", "the test kit knows neither rates nor schedules", (
        "tests/unit/tasks/test_kit.py", "-k", "settle or schedule")),
    ("7-TTL", "tasks expire after a day, with only a counter to show", (
        "tests/unit/tasks/test_tasks.py::test_a_task_does_not_expire_unless_told",
        "tests/unit/tasks/test_tasks.py::test_a_queue_says_how_long_tasks_live",
        "tests/proc/cluster/test_04_ttl.py::test_the_node_that_had_it_is_gone_and_it_is_among_the_dead",
        f"{SCENARIO}[a_job_that_nobody_worked_is_among_the_dead]", f"{SCENARIO}[a_restart_after_its_time]",
        f"{SCENARIO}[done_is_remembered_for_who_was_away]", f"{SCENARIO}[work_that_has_begun_may_end]")),
    ("7-tasks", "no retry=, window=, sync=; no way from an id to a result; no datetime", (
        "tests/unit/tasks/test_tasks.py::test_what_the_decorator_takes",
        "tests/unit/tasks/test_tasks.py::test_a_job_by_its_id",
        "tests/unit/tasks/test_tasks.py::test_times_are_timedeltas_and_datetimes")),
    ("7-worker", "no line per job, no traceback with the job, no figures per task, a mistyped queue is silent", (
        "tests/worker/test_health.py::test_each_job_that_ends_is_one_line",
        "tests/worker/test_health.py::test_its_port_has_the_figures_of_each_task",
        "tests/worker/test_health.py::test_a_queue_that_nobody_knows_is_told",
        "tests/unit/tasks/test_tasks.py::test_where_it_failed_is_kept_with_the_job")),
    ("7-habits", "none of .delay, .apply_async, countdown= gets a hint where it went", (
        "tests/unit/tasks/test_tasks.py::test_who_comes_from_celery_is_told_where_things_went",)),
]


def measured(key: str, test: str) -> Answer:
    return tests(key, "-s", f"{FOLDER}/{test}", figure=FIGURE)


def mended(key: str, names: tuple[str, ...]) -> Answer:
    return tests(key, *names)


def lines() -> list[Line]:
    found = [
        Line(key, title, bound, functools.partial(measured, key, test)) for key, title, bound, test in PROMISES
    ]
    found += [
        Line(f"fault-{number}", title, "all pass, none skipped", functools.partial(mended, f"fault-{number}", names))
        for number, title, names in FAULTS
    ]
    found.append(Line(
        "swarm", f"make swarm MINUTES={SWARM_MINUTES}", "no violation",
        lambda: simulated("swarm", ["make", "swarm", f"MINUTES={SWARM_MINUTES}"]),
    ))
    return found
