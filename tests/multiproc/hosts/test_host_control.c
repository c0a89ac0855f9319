/* What a user sees of the hosts of a run, and what a request does to them. Would catch: a drain on
 * request that goes another way than that of a notice, that answers before the host has left or
 * takes the head; an agent that does not say why it ends; and views of a run that know nothing of
 * its hosts. Hosts are network name spaces;
 * without the right to make them, the tests are skipped. */
#include "support/formats/json_schema.h"
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"
#include "support/lines.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { COMPARED = 12, METRICS_PORT = 9464 };

/* It ends by a request. */
#define JOB                                                                                        \
    NET_JOB "--set train.epochs=1000 --set pipe.k=1 --set autodp.r=2 "                             \
            "--set pipe.m=1 --set elastic.enabled=false --set control.metrics=9464"

static int make_two(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

/* ---- requests ---- */

/* `frostline ctl DIR/run WORDS`: its exit code. What it says, with standard error: net_hosts_said.
 */
static int ctl(const net_hosts *h, const char *words)
{
    net_hosts_shell("'%s/frostline' ctl %s/run %s 2>&1; echo \" exit=$?\"", FL_BINARY_DIR, h->dir,
                    words);
    const char *code = strstr(net_hosts_said(), " exit=");
    return code == NULL ? -1 : (int)strtol(code + strlen(" exit="), NULL, 10);
}

static void expect_said(const char *text)
{
    if (strstr(net_hosts_said(), text) == NULL) {
        fprintf(stderr, "%s\n", net_hosts_said()); /* fail_msg cuts it */
        fail_msg("it does not say: %s", text);
    }
}

static void expect_ctl(const net_hosts *h, const char *words, int code, const char *text)
{
    if (ctl(h, words) != code) {
        fail_msg("ctl %s: %s", words, net_hosts_said());
    }
    expect_said(text);
}

/* The result of a request; its form is that of docs/control/schema.json. The caller frees it. */
static json_t *ask(const net_hosts *h, const char *command, const char *words)
{
    char line[128], form[32], why[256];
    json_t *schema = json_load_file(FL_SOURCE_DIR "/docs/control/schema.json", 0, NULL);
    snprintf(line, sizeof line, "%s %s --json", command, words);
    expect_ctl(h, line, 0, "");
    json_t *reply = json_loads(net_hosts_said(), JSON_DISABLE_EOF_CHECK, NULL);
    json_t *result = json_incref(json_object_get(reply, "result"));
    snprintf(form, sizeof form, "%s_result", command);
    if (!json_schema_holds(schema, form, result, why)) {
        fail_msg("%s: %s", form, why);
    }
    json_decref(reply);
    json_decref(schema);
    return result;
}

static json_t *row(const json_t *object, const char *list, size_t i)
{
    return json_array_get(json_object_get(object, list), i);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static double real_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* From a port of host a that no other network name space reaches. */
static void read_metrics(const net_hosts *h)
{
    assert_true(net_hosts_shell("ip netns exec %s bash -c 'exec 3<>/dev/tcp/127.0.0.1/%d; printf "
                                "\"GET /metrics HTTP/1.0\\r\\n\\r\\n\" >&3; cat <&3'",
                                h->host[0].space, METRICS_PORT));
}

static bool metrics_have(const net_hosts *h, const char *text)
{
    read_metrics(h);
    return strstr(net_hosts_said(), text) != NULL;
}

/* ---- drain ---- */

/* With the key after `drain host`, the shell asks the run for its hosts. */
static void expect_offered(const net_hosts *h, const char *names)
{
    char line[64];
    snprintf(line, sizeof line, "offered: %s\n", names);
    assert_true(net_hosts_shell("bash -c '. \"$0/share/bash-completion/completions/frostline\" && "
                                "COMP_WORDS=(\"$0/frostline\" ctl %s/run drain host \"\") && "
                                "COMP_CWORD=5 && _frostline && echo \"offered: ${COMPREPLY[*]}\"' "
                                "'%s'",
                                h->dir, FL_BINARY_DIR));
    expect_said(line);
}

static bool clock_is_known(const net_hosts *h)
{
    json_t *status = ask(h, "status", "");
    bool known = json_is_number(json_object_get(row(status, "hosts", 1), "round_trip_ms"));
    json_decref(status);
    return known;
}

/* Both hosts have the clock of this machine. */
static void check_clock(const net_hosts *h)
{
    NET_AWAIT(clock_is_known(h));
    json_t *status = ask(h, "status", ""), *b = row(status, "hosts", 1);
    double trip_ms = real_of(b, "round_trip_ms"), offset_ms = real_of(b, "clock_ms");
    print_message("round trip %.3f ms, offset %.3f ms\n", trip_ms, offset_ms);
    assert_true(trip_ms > 0.0 && offset_ms >= -trip_ms && offset_ms <= trip_ms);
    json_decref(status);
}

/* To the milliseconds of status. */
static void check_joined_at(const net_hosts *h, const json_t *b)
{
    char run[sizeof h->dir + 8];
    snprintf(run, sizeof run, "%s/run", h->dir);
    json_t *lines = lines_with(run, "events.jsonl", "host.joined");
    assert_int_equal(length(lines), 1);
    double late_s = real_of(json_array_get(lines, 0), "time") - real_of(b, "joined_at");
    assert_true(late_s < 1e-3 && late_s > -1e-3);
    json_decref(lines);
}

static void check_views_before(const net_hosts *h)
{
    char endpoint[64];
    json_t *status = ask(h, "status", ""), *b = row(status, "hosts", 1);
    assert_string_equal(text_of(b, "name"), "b");
    assert_string_equal(text_of(b, "address"), h->host[1].address);
    assert_string_equal(text_of(b, "state"), "joined");
    assert_int_equal(number(b, "first_worker"), 1);
    assert_true(real_of(b, "joined_at") > 0.0);
    check_joined_at(h, b);
    assert_string_equal(text_of(row(status, "workers", 1), "host"), "b");
    snprintf(endpoint, sizeof endpoint, "tcp://%s:", h->host[0].address);
    assert_int_equal(strncmp(text_of(status, "agents_at"), endpoint, strlen(endpoint)), 0);
    assert_string_equal(text_of(row(status, "links", 2), "between"), "hosts");
    assert_string_equal(text_of(row(status, "links", 2), "from"), "given");
    assert_true(real_of(row(status, "links", 2), "latency_us") == 50.0);
    check_clock(h);
    json_decref(status);
    json_t *flight = ask(h, "flight", "");
    assert_string_equal(text_of(row(flight, "workers", 1), "host"), "b");
    json_decref(flight);
    expect_ctl(h, "status", 0, h->host[1].address);
    NET_AWAIT(metrics_have(h, "\nfrostline_run_state{state=\"paused\"} 1\n"));
    expect_said("\nfrostline_host_info{host=\"b\",address=\"10.213.8.2\",state=\"joined\"} 1\n");
    expect_said("\nfrostline_host_workers{host=\"b\"} 1\n");
    expect_said("\nfrostline_link_latency_seconds{between=\"hosts\"} 5e-05\n");
    expect_said("stage=\"0\",host=\"b\"} 1\n");
}

static void check_views_after(const net_hosts *h)
{
    json_t *status = ask(h, "status", "");
    assert_string_equal(text_of(row(status, "hosts", 0), "state"), "joined");
    assert_string_equal(text_of(row(status, "hosts", 1), "state"), "drained");
    assert_true(real_of(row(status, "hosts", 1), "ended_at") > 0.0);
    json_decref(status);
    NET_AWAIT(metrics_have(h, "\nfrostline_host_end_time_seconds{host=\"b\"} "));
    expect_said("\nfrostline_host_workers{host=\"b\"} 0\n");
}

static void test_host_control__drains_a_host(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_hosts_start_head(h, JOB);
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
    expect_ctl(h, "pause", 0, "paused");
    check_views_before(h);
    expect_offered(h, "b");
    expect_ctl(h, "drain host c", 2, "host: found c, allowed: b");
    expect_ctl(h, "drain worker=1 host=b", 2, "found both");
    expect_ctl(h, "drain", 2, "neither of worker and host");
    expect_ctl(h, "drain host a", 3, "host a is the head");
    expect_ctl(h, "resume", 0, "paused");
    json_t *reply = ask(h, "drain", "host b");
    assert_string_equal(text_of(reply, "host"), "b");
    assert_int_equal(number(reply, "workers"), 1);
    assert_int_equal(number(reply, "r"), 1);
    json_decref(reply);
    assert_int_equal(net_hosts_await_exit(&h->host[1].agent), 6);
    assert_true(net_hosts_log_has(h, "b.log", "drained by a request to the head (frostline ctl "));
    expect_ctl(h, "pause", 0, "paused");
    check_views_after(h);
    expect_offered(h, "");
    expect_ctl(h, "drain host b", 3, "host b is not in the run: it is drained");
    expect_ctl(h, "drain host c", 2, "host: found c, allowed: none: no other host is in the run");
    expect_ctl(h, "resume", 0, "paused");
    expect_ctl(h, "stop", 0, "last_step");
    net_hosts_expect(h, 130);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "host.draining", "\"why\": \"requested\""), 1);
    assert_int_equal(net_hosts_n_events(h, "host.drained", "\"host\": \"b\""), 1);
    net_hosts_run_alone(h, "--set train.max_steps=12");
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
    assert_true(net_hosts_shell("'%s/frostline' report %s/run --out %s/page.html && grep -q "
                                "'>drained<' %s/page.html",
                                FL_BINARY_DIR, h->dir, h->dir, h->dir));
}

/* Would catch: an agent that ends without a word. */
static void test_host_control__a_stop_is_told_to_agents(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_hosts_start_head(h, JOB);
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    expect_ctl(h, "stop", 0, "last_step");
    net_hosts_expect(h, 130);
    assert_true(net_hosts_log_has(h, "b.log", "the run was stopped on the head: this agent ends"));
    assert_true(net_hosts_shell("[ $(wc -l < %s/b.log) = 2 ]", h->dir));
}

#define TWO(test) cmocka_unit_test_setup_teardown(test, make_two, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TWO(test_host_control__drains_a_host),
        TWO(test_host_control__a_stop_is_told_to_agents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
