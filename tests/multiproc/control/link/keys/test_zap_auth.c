/* Access over a network. Would catch: a job that listens without keys, a secret key that other
 * users can read, a client that is accepted although its key is not on the list. */
#include "control/link/keys/zap_auth.h"
#include "device/system/clock.h"
#include "launcher/job/job.h"
#include "launcher/top/feed/top_feed.h"
#include "support/folder.h"
#include "support/runs/live_run.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

static char dir[FOLDER_SIZE];

static int make_dir(void **state)
{
    (void)state;
    make_folder(dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    return remove_folder(dir);
}

static const char *path_of(const char *name)
{
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, 128, "%s/%s", dir, name);
    return path;
}

static void write_file(const char *name, mode_t mode, const char *text)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path_of(name), mode), 0);
}

/* NAME.key and NAME.pub. */
static void make_keys(const char *name)
{
    char file[64], public_key[FL_KEY_MAX], secret_key[FL_KEY_MAX];
    assert_int_equal(zmq_curve_keypair(public_key, secret_key), 0);
    snprintf(file, sizeof file, "%s.key", name);
    write_file(file, 0600, secret_key);
    snprintf(file, sizeof file, "%s.pub", name);
    write_file(file, 0644, public_key);
}

static void allow(const char *name, const char *and_text)
{
    char key[FL_KEY_MAX], text[256], file[64];
    snprintf(file, sizeof file, "%s.pub", name);
    assert_int_equal(fl_zap_auth_read_key(path_of(file), false, key), FL_OK);
    snprintf(text, sizeof text, "# who may\n\n%s\n%s", key, and_text);
    write_file("allow", 0644, text);
}

static void refused(const char *listen, const char *key, const char *allowed, const char *says)
{
    fl_job job;
    fl_zap_auth *guard = NULL;
    fl_job_defaults(&job);
    snprintf(job.control.listen, sizeof job.control.listen, "%s", listen);
    snprintf(job.control.key, sizeof job.control.key, "%s", key[0] ? path_of(key) : "");
    snprintf(job.control.allow, sizeof job.control.allow, "%s", allowed[0] ? path_of(allowed) : "");
    assert_int_equal(fl_zap_auth_create(&job, &guard), FL_EINVAL);
    assert_null(guard);
    if (strstr(fl_errmsg(), says) == NULL) {
        fail_msg("%s", fl_errmsg());
    }
}

static void test_zap_auth__a_job_that_is_not_safe_is_refused(void **state)
{
    (void)state;
    make_keys("run");
    make_keys("client");
    allow("client", "");
    refused("tcp://127.0.0.1:5550", "", "allow", "control.key: found none");
    refused("tcp://127.0.0.1:5550", "run.key", "", "control.allow: found none");
    refused("ipc://x", "run.key", "allow", "control.listen: found 'ipc://x'");
    refused("tcp://127.0.0.1", "run.key", "allow", "control.listen");
    refused("tcp://127.0.0.1:0", "run.key", "allow", "control.listen");
    refused("tcp://127.0.0.1:65535", "run.key", "allow", "control.listen"); /* no next port */
    refused("tcp://127.0.0.1:1x", "run.key", "allow", "control.listen");
    refused("tcp://127.0.0.1:5550", "nothing", "allow", "control.key");
    refused("tcp://127.0.0.1:5550", "run.pub", "allow", "others may read this secret");
    write_file("short.key", 0600, "abc\n");
    refused("tcp://127.0.0.1:5550", "short.key", "allow", "no key found");
    write_file("empty", 0644, "# nobody\n");
    refused("tcp://127.0.0.1:5550", "run.key", "empty", "no client could connect");
    allow("client", "not a key\n");
    refused("tcp://127.0.0.1:5550", "run.key", "allow", "key 2: not a key");
}

/* Two ports in a row that are free just now. */
static int free_port(void)
{
    for (int tries = 0; tries < 100; tries++) {
        int fds[2], ports[2] = {0, 0};
        bool bound = true;
        for (int i = 0; i < 2; i++) {
            struct sockaddr_in address = {.sin_family = AF_INET,
                                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
            socklen_t size = sizeof address;
            address.sin_port = htons((uint16_t)(i == 0 ? 0 : ports[0] + 1));
            fds[i] = socket(AF_INET, SOCK_STREAM, 0);
            bound = bound && bind(fds[i], (struct sockaddr *)&address, sizeof address) == 0 &&
                    getsockname(fds[i], (struct sockaddr *)&address, &size) == 0;
            ports[i] = ntohs(address.sin_port);
        }
        close(fds[0]);
        close(fds[1]);
        if (bound) {
            return ports[0];
        }
    }
    fail_msg("no two free ports in a row");
    return -1;
}

/* says: NULL for a client that is let in, else a part of the message of one that is not. */
static void try_client(const char *endpoint, const char *key, const char *says)
{
    fl_ctl_client_link *link = NULL;
    const char *reply = NULL;
    assert_int_equal(
        fl_ctl_client_open_far(endpoint, false, path_of(key), path_of("run.pub"), &link), FL_OK);
    const char *ask = "{\"v\": 1, \"id\": \"1\", \"cmd\": \"status\"}";
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    fl_status status = fl_ctl_client_ask(link, ask, says == NULL ? LIVE_WAIT_MS : 1000, &reply);
    while (says != NULL && status == FL_EDEADLINE && strstr(fl_errmsg(), says) == NULL &&
           fl_left_ms(deadline_us) > 0) { /* the handshake of a slow server is not over yet */
        status = fl_ctl_client_ask(link, ask, 1000, &reply);
    }
    assert_int_equal(status, says == NULL ? FL_OK : FL_EDEADLINE);
    assert_non_null(says == NULL ? strstr(reply, "\"ok\": true") : strstr(fl_errmsg(), says));
    fl_ctl_client_close(&link);
}

/* A client that speaks no CURVE at all. */
static void try_plain(const char *endpoint)
{
    char reply[64];
    int linger_ms = 0, timeout_ms = 1000;
    void *zmq = zmq_ctx_new(), *socket = zmq_socket(zmq, ZMQ_DEALER);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    assert_int_equal(zmq_connect(socket, endpoint), 0);
    zmq_send(socket, "{}", 2, ZMQ_DONTWAIT);
    assert_int_equal(zmq_recv(socket, reply, sizeof reply, 0), -1);
    zmq_close(socket);
    zmq_ctx_term(zmq);
}

static void watch_event(const char *endpoint, live_run *run)
{
    fl_ctl_client_link *link = NULL;
    const char *line = NULL;
    int64_t sequence = 0;
    fl_status status = FL_EDEADLINE;
    assert_int_equal(
        fl_ctl_client_open_far(endpoint, true, path_of("client.key"), path_of("run.pub"), &link),
        FL_OK);
    for (int i = 0; i < 100 && status != FL_OK; i++) { /* the subscription takes its time */
        json_decref(live_ask(run, "set", "{\"field\": \"log.level\", \"value\": \"info\"}"));
        status = fl_ctl_client_event(link, 100, &line, &sequence);
    }
    assert_int_equal(status, FL_OK);
    assert_non_null(strstr(line, "\"event\": "));
    fl_ctl_client_close(&link);
}

/* The screen of `frostline top` for a remote run. Would catch: events or curves that are read only
 * from files. */
static void watch_top(const char *endpoint, live_run *run)
{
    static fl_top_model model;
    fl_top_feed *feed = NULL;
    fl_ctl_place place = {.far = true, .key = path_of("client.key"), .server = path_of("run.pub")};
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    snprintf(place.path, sizeof place.path, "%s", endpoint);
    fl_top_model_init(&model);
    assert_int_equal(fl_top_feed_open(&place, &model, &feed), FL_OK);
    while (!model.known || model.n_events == 0 || model.loss_curve.n == 0) {
        json_decref(live_ask(run, "set", "{\"field\": \"log.level\", \"value\": \"info\"}"));
        (void)fl_top_feed_poll(feed);
        assert_true(fl_left_ms(deadline_us) > 0);
    }
    assert_int_equal(model.n_workers, 1);
    assert_int_equal(model.n_lost, 0);
    fl_top_feed_close(&feed);
    assert_null(feed);
}

static void test_zap_auth__lets_in_whom_the_job_names(void **state)
{
    (void)state;
    char endpoint[64], run_key[FL_KEY_MAX];
    make_keys("run");
    make_keys("client");
    make_keys("stranger");
    assert_int_equal(fl_zap_auth_read_key(path_of("run.pub"), false, run_key), FL_OK);
    allow("client", "");
    snprintf(endpoint, sizeof endpoint, "tcp://127.0.0.1:%d", free_port());
    live_run run = live_start((const char *const[]){
        "train.batch", "10", "train.evaluate", "false", "train.epochs", "90000", "devices.count",
        "1", "control.listen", endpoint, "control.key", path_of("run.key"), "control.allow",
        path_of("allow"), NULL});
    try_client(endpoint, "client.key", NULL);
    try_client(endpoint, "stranger.key", "the keys do not fit");
    make_keys("run"); /* the public key of another run */
    try_client(endpoint, "client.key", "the keys do not fit");
    write_file("run.pub", 0644, run_key);
    try_plain(endpoint);
    try_client(endpoint, "client.key", NULL);
    watch_event(endpoint, &run);
    watch_top(endpoint, &run);
    json_decref(live_ask(&run, "stop", "{}"));
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    try_client(endpoint, "client.key", "nothing listens there");
    live_clean(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_zap_auth__a_job_that_is_not_safe_is_refused, make_dir,
                                        remove_dir),
        cmocka_unit_test_setup_teardown(test_zap_auth__lets_in_whom_the_job_names, make_dir,
                                        remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
