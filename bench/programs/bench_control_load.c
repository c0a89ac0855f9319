/* Load on the control plane of a live run: status requests, and subscribers that never read.
 *
 *     bench_control_load RUN_DIR REQUESTS_A_SECOND SUBSCRIBERS SECONDS
 *
 * It is as cheap as a client that asks so often can well be: one thread, one DEALER, and requests
 * sent by the ten, without waiting for the replies to those before. Each reply is counted, and so
 * is each that says ok. Once a second it also sets the learning rate: that is an event, which goes
 * to all subscribers.
 *
 * Prints one line: requests sent, answered, answered with ok, events that they caused, and the
 * processor time of this process in percent of one processor. Exits with 1 unless all were answered
 * and good. bench/control_cost.sh looks at what the run makes of it.
 */
#include "control/socket/ctl_names.h"
#include "device/system/clock.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <zmq.h>

enum { MOST_SUBSCRIBERS = 200, AT_ONCE = 10, LAST_MS = 2000, REQUEST_BYTES = 160 };

typedef struct load {
    int dir_fd;
    void *zmq, *requests;
    void *deaf[MOST_SUBSCRIBERS];
    int n_deaf;
    double rate; /* requests a second */
    int64_t n_sent, n_answered, n_good, n_set;
} load;

static void *join(const load *l, int type, const char *name)
{
    char endpoint[64];
    int linger_ms = 0;
    void *socket = zmq_socket(l->zmq, type);
    snprintf(endpoint, sizeof endpoint, "ipc:///proc/self/fd/%d/%s", l->dir_fd, name);
    if (socket != NULL) {
        (void)zmq_setsockopt(socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    }
    bool good = socket != NULL && zmq_connect(socket, endpoint) == 0 &&
                (type != ZMQ_SUB || zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0) == 0);
    return good ? socket : NULL;
}

static bool open_load(load *l, const char *run_dir)
{
    l->dir_fd = open(run_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    l->zmq = zmq_ctx_new();
    l->requests = join(l, ZMQ_DEALER, FL_CTL_SOCKET);
    bool good = l->dir_fd >= 0 && l->requests != NULL;
    for (int i = 0; i < l->n_deaf && good; i++) {
        l->deaf[i] = join(l, ZMQ_SUB, FL_CTL_EVENTS_SOCKET);
        good = l->deaf[i] != NULL;
    }
    return good;
}

static bool send(load *l, const char *cmd, const char *args)
{
    char text[REQUEST_BYTES];
    int n = snprintf(text, sizeof text,
                     "{\"v\": 1, \"id\": \"%" PRId64 "\", \"cmd\": \"%s\", \"args\": {%s}}",
                     l->n_sent + 1, cmd, args);
    bool sent = zmq_send(l->requests, text, (size_t)n, ZMQ_DONTWAIT) >= 0;
    l->n_sent += sent;
    return sent;
}

/* Count what has come. */
static void take(load *l)
{
    char text[8192];
    int n;
    while ((n = zmq_recv(l->requests, text, sizeof text - 1, ZMQ_DONTWAIT)) >= 0) {
        text[(size_t)n < sizeof text ? (size_t)n : sizeof text - 1] = 0;
        l->n_answered++;
        l->n_good += strstr(text, "\"ok\": true") != NULL;
    }
}

static bool send_ten(load *l, double now_s)
{
    bool good = true;
    if ((double)l->n_set < now_s) {
        good = send(l, "set", "\"field\": \"train.lr\", \"value\": 0.001");
        l->n_set += good;
    }
    for (int i = 0; i < AT_ONCE && good; i++) {
        good = send(l, "status", "");
    }
    return good;
}

/* Wait for replies that are still on their way. */
static void take_rest(load *l)
{
    int64_t end_us = fl_deadline_us(LAST_MS);
    while (l->n_answered < l->n_sent && fl_left_ms(end_us) > 0) {
        zmq_pollitem_t item = {l->requests, 0, ZMQ_POLLIN, 0};
        zmq_poll(&item, 1, (long)fl_left_ms(end_us));
        take(l);
    }
}

static bool run_load(load *l, double seconds)
{
    int64_t begun_us = fl_now_us();
    bool good = true;
    for (double s = 0; s < seconds && good; s = (double)(fl_now_us() - begun_us) * 1e-6) {
        take(l);
        good = send_ten(l, s);
        double ahead_s =
            (double)(l->n_sent - l->n_set) / l->rate - (double)(fl_now_us() - begun_us) * 1e-6;
        if (ahead_s > 0) {
            const struct timespec nap = {.tv_sec = (time_t)ahead_s,
                                         .tv_nsec = (long)(fmod(ahead_s, 1.0) * 1e9)};
            nanosleep(&nap, NULL);
        }
    }
    take_rest(l);
    return good && l->n_good == l->n_sent;
}

static double processor_s(void)
{
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
    load l = {.n_deaf = argc == 5 ? atoi(argv[3]) : -1, .rate = argc == 5 ? atof(argv[2]) : 0};
    if (l.n_deaf < 0 || l.n_deaf > MOST_SUBSCRIBERS || !(l.rate >= AT_ONCE)) {
        fprintf(stderr,
                "usage: bench_control_load RUN_DIR REQUESTS_A_SECOND SUBSCRIBERS SECONDS\n");
        return 2;
    }
    if (!open_load(&l, argv[1])) {
        fprintf(stderr, "bench_control_load: %s: %s\n", argv[1], zmq_strerror(zmq_errno()));
        return 3;
    }
    double begun_s = processor_s();
    int64_t begun_us = fl_now_us();
    bool good = run_load(&l, atof(argv[4]));
    double share = (processor_s() - begun_s) / ((double)(fl_now_us() - begun_us) * 1e-6);
    printf("%" PRId64 " sent, %" PRId64 " answered, %" PRId64 " ok, %" PRId64
           " events, %.2f %% of a processor\n",
           l.n_sent, l.n_answered, l.n_good, l.n_set, 100 * share);
    for (int i = 0; i < l.n_deaf; i++) {
        zmq_close(l.deaf[i]);
    }
    zmq_close(l.requests);
    zmq_ctx_term(l.zmq);
    return good ? 0 : 1;
}
