/* A stranger on the network of a run on several hosts: it connects again and again to both ports of
 * the head, from a host of its own, with noise, with the right greeting and noise behind it, with
 * wrong keys, with what an agent and its workers really sent, in silence, and a byte at a time.
 * Would catch: a head that dies or hangs, that lets the stranger change a loss, or that runs out of
 * memory or descriptors.
 *
 * With FL_TEST_MATRIX in the environment, 10,000 connections (ctest -L long); else some hundreds.
 */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

#include <cmocka.h>

enum {
    PORT = 5570,
    N_PORTS = 2,
    HELD = 400, /* connections that the stranger keeps open at a time */
    MOST_BYTES = 65536,
    MOST_RECORDS = 16,
    SOME_STEPS = 50,
    COMPARED = 12,
    MORE_MIB = 64, /* that the head may take meanwhile */
    MORE_FILES = HELD + 200,
};

/* Where the head listens. Host b has this address, too: there, the relay listens at it, so that the
 * agent and its workers, which the head tells where it listens, all connect to the relay. */
#define HEAD_AT "10.213.99.1"

/* What the processes of the test share. */
typedef struct shared {
    atomic_int n_records; /* what was really sent, by connection */
    atomic_int n_bytes[MOST_RECORDS], port[MOST_RECORDS];
    unsigned char record[MOST_RECORDS][MOST_BYTES];
    atomic_int n_connections, n_refused; /* by the stranger */
} shared;

static shared *map_shared(void)
{
    void *memory =
        mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

/* The sockets of this process are those of host i from now on. */
static void enter_host(const net_hosts *h, int i)
{
    char path[64];
    snprintf(path, sizeof path, "/run/netns/%s", h->host[i].space);
    int space = open(path, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET) != 0) {
        _exit(127);
    }
    close(space);
}

/* A child of the test on host i. */
static pid_t fork_on(const net_hosts *h, int i)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        enter_host(h, i);
        signal(SIGPIPE, SIG_IGN);
    }
    assert_true(pid >= 0);
    return pid;
}

static int connect_to(const char *address, int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, address, &to.sin_addr);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* ---- a relay between host b and the head, which keeps what goes to the head ---- */

typedef struct relayed {
    int near, far, record; /* record -1: it is not kept */
} relayed;

static bool pass_on(int from, int to, shared *s, int record)
{
    unsigned char bytes[MOST_BYTES];
    ssize_t n = recv(from, bytes, sizeof bytes, 0);
    if (n > 0 && record >= 0) {
        int at = atomic_load(&s->n_bytes[record]);
        int kept = (int)n < MOST_BYTES - at ? (int)n : MOST_BYTES - at;
        memcpy(s->record[record] + at, bytes, (size_t)kept);
        atomic_store(&s->n_bytes[record], at + kept);
    }
    return n > 0 && send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static int listen_at(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, HEAD_AT, &at.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 16) == 0 ? fd : -1;
}

static void take_connection(shared *s, int listener, int port, relayed *r)
{
    r->near = accept(listener, NULL, NULL);
    r->far = connect_to(HEAD_AT, port);
    int record = atomic_load(&s->n_records);
    r->record = record < MOST_RECORDS ? record : -1;
    if (r->record >= 0) {
        atomic_store(&s->port[record], port);
        atomic_store(&s->n_records, record + 1);
    }
}

/* It listens on host b, and connects from host c, where the address is that of the head. */
static _Noreturn void run_relay(const net_hosts *h, shared *s)
{
    enum { MOST = 64 };
    relayed list[MOST];
    struct pollfd look[N_PORTS + 2 * MOST];
    int n = 0;
    for (int i = 0; i < N_PORTS; i++) {
        look[i] = (struct pollfd){.fd = listen_at(PORT + i), .events = POLLIN};
    }
    enter_host(h, 2);
    for (;;) {
        for (int i = 0; i < n; i++) {
            look[N_PORTS + 2 * i] = (struct pollfd){.fd = list[i].near, .events = POLLIN};
            look[N_PORTS + 2 * i + 1] = (struct pollfd){.fd = list[i].far, .events = POLLIN};
        }
        (void)poll(look, (nfds_t)(N_PORTS + 2 * n), -1);
        for (int i = 0, had = n; i < had; i++) {
            relayed *r = &list[i];
            bool good =
                (look[N_PORTS + 2 * i].revents == 0 || pass_on(r->near, r->far, s, r->record)) &&
                (look[N_PORTS + 2 * i + 1].revents == 0 || pass_on(r->far, r->near, s, -1));
            if (!good) {
                close(r->near);
                close(r->far);
                r->near = r->far = -1;
            }
        }
        for (int i = 0; i < N_PORTS; i++) {
            int place = 0;
            while (place < n && list[place].near >= 0) {
                place++;
            }
            if (look[i].revents != 0 && place < MOST) {
                take_connection(s, look[i].fd, PORT + i, &list[place]);
                n = place == n ? n + 1 : n;
            }
        }
    }
}

/* ---- the stranger ---- */

/* ZeroMQ's greeting: its signature, version 3.1, the mechanism, a client. */
static const unsigned char greeting[64] = {0xff, 0, 0, 0,   0,   0,   0,   0,  1,
                                           0x7f, 3, 1, 'C', 'U', 'R', 'V', 'E'};

static size_t fill_noise(unsigned char *bytes, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1103515245u + 12345u;
        bytes[i] = (unsigned char)(seed >> 16);
    }
    return n;
}

/* What the n-th connection sends. */
static size_t write_attack(const shared *s, int n, unsigned char bytes[MOST_BYTES], int *port)
{
    enum { HELLO = 202 };
    int n_records = atomic_load(&s->n_records);
    memcpy(bytes, greeting, sizeof greeting);
    switch (n % 8) {
    case 0:
        return fill_noise(bytes, 512, (unsigned)n);
    case 1: /* another mechanism */
        memcpy(bytes + 12, "NULL\0", 5);
        return sizeof greeting + fill_noise(bytes + sizeof greeting, 300, (unsigned)n);
    case 2: /* a HELLO of the right length */
        memcpy(bytes + sizeof greeting, "\x04\xc8\x05HELLO\x01\x00", 10);
        return sizeof greeting + 10 +
               fill_noise(bytes + sizeof greeting + 10, HELLO - 10, (unsigned)n);
    case 3: /* a frame that is said to be very long */
        memcpy(bytes + sizeof greeting, "\x02\x7f\xff\xff\xff\xff\xff\xff\xff", 9);
        return sizeof greeting + 9 + fill_noise(bytes + sizeof greeting + 9, 4000, (unsigned)n);
    case 4: /* silence */
        return 0;
    case 5: /* a part of the greeting, of which a byte follows now and then */
        return 11;
    default: /* what was really sent */
        if (n_records == 0) {
            return fill_noise(bytes, 64, (unsigned)n);
        }
        *port = atomic_load(&s->port[n / 8 % n_records]);
        int size = atomic_load(&s->n_bytes[n / 8 % n_records]);
        memcpy(bytes, s->record[n / 8 % n_records], (size_t)size);
        return (size_t)size;
    }
}

/* A client of ZeroMQ with keys of its own, and the head's public key, which is no secret. */
static void offer_wrong_keys(void *zmq, const char *server, const char *endpoint)
{
    char public_key[41], secret_key[41];
    int zero = 0;
    void *socket = zmq_socket(zmq, ZMQ_DEALER);
    if (socket != NULL && zmq_curve_keypair(public_key, secret_key) == 0) {
        zmq_setsockopt(socket, ZMQ_LINGER, &zero, sizeof zero);
        zmq_setsockopt(socket, ZMQ_CURVE_SERVERKEY, server, 40);
        zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY, public_key, 40);
        zmq_setsockopt(socket, ZMQ_CURVE_SECRETKEY, secret_key, 40);
        zmq_connect(socket, endpoint);
        zmq_send(socket, "store", 5, ZMQ_DONTWAIT);
        struct pollfd none;
        (void)poll(&none, 0, 5); /* the handshake */
    }
    zmq_close(socket);
}

static void read_public_key(const net_hosts *h, char key[41])
{
    memset(key, 0, 41);
    if (!net_hosts_shell("head -n 1 %s/run/hosts.key", h->dir) || strlen(net_hosts_said()) < 40) {
        fail_msg("no public key in hosts.key");
    }
    memcpy(key, net_hosts_said(), 40);
}

static _Noreturn void run_stranger(const net_hosts *h, shared *s, const char *key)
{
    static int held[HELD];
    static unsigned char bytes[MOST_BYTES];
    const char *head = h->host[0].address;
    void *zmq = zmq_ctx_new();
    memset(held, -1, sizeof held);
    for (int n = 0;; n++) {
        int port = PORT + n / 8 % N_PORTS, *place = &held[n % HELD];
        if (*place >= 0) {
            close(*place);
            *place = -1;
        }
        if (n % 40 == 39) {
            char endpoint[64];
            snprintf(endpoint, sizeof endpoint, "tcp://%s:%d", head, port);
            offer_wrong_keys(zmq, key, endpoint);
        }
        size_t size = write_attack(s, n, bytes, &port);
        *place = connect_to(head, port);
        if (*place < 0) {
            atomic_fetch_add(&s->n_refused, 1);
            continue;
        }
        (void)send(*place, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        for (int other = n % 7; other < HELD; other += 7) { /* the slow ones go on */
            if (held[other] >= 0 && other % 8 == 5) {
                (void)send(held[other], greeting + 11, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
            }
        }
        atomic_fetch_add(&s->n_connections, 1);
    }
}

/* ---- what the head has ---- */

static long resident_mib(pid_t pid)
{
    char path[64];
    long pages = 0, resident = 0;
    snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    if (file != NULL) {
        if (fscanf(file, "%ld %ld", &pages, &resident) != 2) {
            resident = 0;
        }
        fclose(file);
    }
    return resident * sysconf(_SC_PAGESIZE) >> 20;
}

static void await_training(const net_hosts *h)
{
    int64_t until_us = fl_deadline_us(NET_HOSTS_WAIT_MS);
    while (net_hosts_n_steps(h) == 0) {
        if (fl_left_ms(until_us) == 0) {
            net_hosts_shell("tail -n 20 %s/*.log", h->dir);
            fail_msg("the run does not train: %s", net_hosts_said());
        }
        nap(2000);
    }
}

static bool has_ended(pid_t child)
{
    siginfo_t how = {.si_pid = 0};
    return waitid(P_PID, (id_t)child, &how, WEXITED | WNOHANG | WNOWAIT) != 0 || how.si_pid != 0;
}

/* What connects to HEAD_AT reaches the relay on host b, and the head elsewhere. */
static void lead_by_the_relay(net_hosts *h)
{
    const char *head = h->host[0].address;
    assert_true(net_hosts_shell("ip -n %s addr add " HEAD_AT "/32 dev lo && "
                                "ip -n %s addr add " HEAD_AT "/32 dev lo && "
                                "ip -n %s route add " HEAD_AT "/32 via %s",
                                h->host[0].space, h->host[1].space, h->host[2].space, head));
    snprintf(h->host[0].address, sizeof h->host[0].address, HEAD_AT);
}

/* How many connections to this port were recorded, with what was sent. */
static int n_recorded(const shared *s, int port)
{
    int n = 0, n_records = atomic_load(&s->n_records);
    for (int i = 0; i < n_records; i++) {
        n += atomic_load(&s->port[i]) == port && atomic_load(&s->n_bytes[i]) > 0;
    }
    return n;
}

static void test_hosts_hostile__strangers_change_nothing(void **state)
{
    (void)state;
    bool all = getenv("FL_TEST_MATRIX") != NULL;
    int needed = all ? 10000 : 300;
    net_hosts h;
    char more[64], key[41];
    net_hosts_make(&h, 3, (const int[]){1, 1, 1});
    if (!h.exist) {
        net_hosts_remove(&h);
        print_message("skipped: no right to make network name spaces\n");
        skip();
    }
    shared *s = map_shared();
    net_hosts_write_file(&h, "ab"); /* host c is the stranger's */
    lead_by_the_relay(&h);
    pid_t relay = fork_on(&h, 1);
    if (relay == 0) {
        run_relay(&h, s);
    }
    net_hosts_start_head(&h, NET_JOB "--set train.epochs=100000 --set elastic.enabled=false "
                                     "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1");
    net_hosts_start_agent(&h, 1);
    await_training(&h);
    read_public_key(&h, key);
    int files = net_hosts_n_files(h.head), most_files = files;
    long mib = resident_mib(h.head), most_mib = mib;
    pid_t stranger = fork_on(&h, 2);
    if (stranger == 0) {
        run_stranger(&h, s, key);
    }
    int64_t deadline_us = fl_deadline_us(NET_HOSTS_WAIT_MS);
    int steps = net_hosts_n_steps(&h);
    while (
        (atomic_load(&s->n_connections) < needed || net_hosts_n_steps(&h) < steps + SOME_STEPS) &&
        !has_ended(h.head) && (all || fl_left_ms(deadline_us) > 0)) {
        int now = net_hosts_n_files(h.head);
        long now_mib = resident_mib(h.head);
        most_files = now > most_files ? now : most_files;
        most_mib = now_mib > most_mib ? now_mib : most_mib;
        nap(20000);
    }
    int n = atomic_load(&s->n_connections);
    int how = 0;
    assert_int_equal(waitpid(stranger, &how, WNOHANG), 0); /* it still tries */
    kill(stranger, SIGKILL);
    waitpid(stranger, &how, 0);
    int of_agent = n_recorded(s, PORT), of_workers = n_recorded(s, PORT + 1);
    print_message("%d connections (%d refused by the system), recorded: %d of the agent, %d of "
                  "workers; files %d, at most %d; memory %ld MiB, at most %ld\n",
                  n, atomic_load(&s->n_refused), of_agent, of_workers, files, most_files, mib,
                  most_mib);
    steps = net_hosts_n_steps(&h);
    NET_AWAIT(net_hosts_n_steps(&h) > steps + SOME_STEPS || has_ended(h.head));
    kill(h.head, SIGTERM);
    h.n = 2;
    net_hosts_expect_codes(&h, 5, 5);
    h.n = 3;
    kill(relay, SIGKILL);
    waitpid(relay, NULL, 0);
    assert_true(n >= needed);
    assert_true(of_agent >= 1 && of_workers >= 1);
    assert_true(most_files <= files + MORE_FILES);
    assert_true(most_mib <= mib + MORE_MIB);
    assert_int_equal(net_hosts_n_events(&h, "worker.lost", ""), 0);
    snprintf(more, sizeof more, "--set train.max_steps=%d", COMPARED);
    net_hosts_run_alone(&h, more);
    net_hosts_check(&h, net_hosts_n_steps(&h), COMPARED);
    munmap(s, sizeof *s);
    assert_int_equal(net_hosts_remove(&h), 0);
}

static _Noreturn void connect_and_stay_silent(const net_hosts *h, shared *s)
{
    for (int i = 0; i < HELD; i++) {
        if (connect_to(h->host[0].address, PORT + i % N_PORTS) >= 0) {
            atomic_fetch_add(&s->n_connections, 1);
        }
    }
    for (;;) {
        pause();
    }
}

/* Would catch: a head that keeps such connections for half a minute, as ZeroMQ does by itself. */
static void test_hosts_hostile__silent_connections_are_closed(void **state)
{
    (void)state;
    enum { CLOSED_MS = 25000, SOME = 8 };
    net_hosts h;
    net_hosts_make(&h, 3, (const int[]){1, 1, 1});
    if (!h.exist) {
        net_hosts_remove(&h);
        print_message("skipped: no right to make network name spaces\n");
        skip();
    }
    shared *s = map_shared();
    net_hosts_write_file(&h, "ab");
    net_hosts_start_head(&h, NET_JOB "--set train.max_steps=1000000 --set train.epochs=1000 "
                                     "--set elastic.enabled=false --set pipe.k=1 "
                                     "--set autodp.r=2 --set pipe.m=1");
    net_hosts_start_agent(&h, 1);
    NET_AWAIT(net_hosts_n_steps(&h) > 0);
    int files = net_hosts_n_files(h.head);
    pid_t stranger = fork_on(&h, 2);
    if (stranger == 0) {
        connect_and_stay_silent(&h, s);
    }
    NET_AWAIT(atomic_load(&s->n_connections) == HELD);
    NET_AWAIT(net_hosts_n_files(h.head) >= files + HELD / 2);
    int64_t closed_us = fl_deadline_us(CLOSED_MS);
    NET_AWAIT(net_hosts_n_files(h.head) <= files + SOME);
    bool in_time = fl_left_ms(closed_us) > 0;
    int steps = net_hosts_n_steps(&h);
    NET_AWAIT(net_hosts_n_steps(&h) > steps);
    kill(stranger, SIGKILL);
    waitpid(stranger, NULL, 0);
    munmap(s, sizeof *s);
    assert_int_equal(net_hosts_remove(&h), 0);
    assert_true(in_time);
}

int main(void)
{
    const struct CMUnitTest few[] = {
        cmocka_unit_test(test_hosts_hostile__strangers_change_nothing),
    };
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_hosts_hostile__strangers_change_nothing),
        cmocka_unit_test(test_hosts_hostile__silent_connections_are_closed),
    };
    return getenv("FL_TEST_MATRIX") != NULL ? cmocka_run_group_tests(all, NULL, NULL)
                                            : cmocka_run_group_tests(few, NULL, NULL);
}
