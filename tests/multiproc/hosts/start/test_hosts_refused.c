/* Who is refused: agents with another key or name, noise on the ports of the head, and hosts,
 * options and files that cannot be used. The hosts are loopback addresses. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"
#include "support/shell.h"

#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 12, COMPARED = 12 };

static output said;

static int make_loopback(void **state)
{
    net_hosts *h = calloc(1, sizeof *h);
    assert_non_null(h);
    net_hosts_make_loopback(h, 2);
    *state = h;
    return 0;
}

static void send_junk(int port)
{
    unsigned char noise[512];
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    for (int i = 0; i < 50; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        assert_true(fd >= 0);
        memset(noise, i * 7, sizeof noise);
        if (connect(fd, (struct sockaddr *)&to, sizeof to) == 0) {
            (void)send(fd, noise, sizeof noise, MSG_NOSIGNAL);
        }
        close(fd);
    }
}

/* Neither a wrong key, nor a wrong name, nor noise changes what the run computes. */
static void test_hosts_refused__strangers_are_refused(void **state)
{
    net_hosts *h = *state;
    char job[NET_HOSTS_TEXT], more[64], arguments[NET_HOSTS_TEXT];
    snprintf(job, sizeof job,
             NET_JOB "--set train.max_steps=%d --set pipe.k=2 --set autodp.r=1 "
                     "--set pipe.m=2",
             STEPS);
    net_hosts_start_head(h, job);
    net_hosts_await_key(h);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "waits for 1 other host"));
    send_junk(5570);
    send_junk(5571);
    assert_true(net_hosts_shell(
        "'%s/frostline' key %s/a && '%s/frostline' key %s/b && cat %s/a.pub %s/b > "
        "%s/other && chmod 600 %s/other",
        FL_BINARY_DIR, h->dir, FL_BINARY_DIR, h->dir, h->dir, h->dir, h->dir, h->dir));
    snprintf(arguments, sizeof arguments,
             "agent --join tcp://%s:5570 --key %s/other --name b --wait 1", h->host[0].address,
             h->dir);
    h->host[1].agent = net_hosts_start(h, 1, "other.log", arguments);
    assert_int_equal(net_hosts_await_exit(&h->host[1].agent), 2);
    assert_true(net_hosts_log_has(h, "other.log", "refuses the key"));
    snprintf(arguments, sizeof arguments,
             "agent --join tcp://%s:5570 --key %s/run/hosts.key "
             "--name c",
             h->host[0].address, h->dir);
    h->host[1].agent = net_hosts_start(h, 1, "c.log", arguments);
    assert_int_equal(net_hosts_await_exit(&h->host[1].agent), 2);
    assert_true(net_hosts_log_has(h, "c.log", "the run has no host of this name"));
    assert_true(net_hosts_log_has(h, "c.log", "(devices.max); the run waits for b ("));
    net_hosts_start_agent(h, 1);
    net_hosts_expect_codes(h, 0, 0);
    snprintf(more, sizeof more, "--set train.max_steps=%d", STEPS);
    net_hosts_run_alone(h, more);
    net_hosts_check(h, STEPS, COMPARED);
}

static void start_stale(net_hosts *h, const char *job)
{
    char arguments[NET_HOSTS_TEXT];
    snprintf(arguments, sizeof arguments, "agent --join tcp://%s:5570 --key %s/b.key --name b",
             h->host[0].address, h->dir);
    net_hosts_start_head(h, job);
    net_hosts_await_key(h);
    assert_true(net_hosts_shell("mv %s/run/hosts.key %s/b.key && ! [ -e %s/run/hosts.key ]", h->dir,
                                h->dir, h->dir));
    assert_int_equal(kill(h->head, SIGKILL), 0);
    assert_int_equal(net_hosts_await_exit(&h->head), 128 + SIGKILL);
    assert_true(net_hosts_shell("rm -r %s/run", h->dir));
    net_hosts_start_head(h, job);
    net_hosts_await_key(h);
    h->host[1].agent = net_hosts_start(h, 1, "b.log", arguments);
}

/* A head that was killed leaves its keys, and the agent is there before the next head has written
 * new ones. Would catch: an agent that ends at once with code 2, as if its keys could never fit,
 * while the head waits ten minutes for it. */
static void test_hosts_refused__a_stale_key_is_read_again(void **state)
{
    net_hosts *h = *state;
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job,
             NET_JOB "--set train.max_steps=%d --set pipe.k=1 --set autodp.r=2 --set pipe.m=1",
             STEPS);
    start_stale(h, job);
    NET_AWAIT(net_hosts_log_has(h, "b.log", "b.key again for up to 60 s"));
    assert_true(net_hosts_shell("cp -p %s/run/hosts.key %s/new && mv %s/new %s/b.key", h->dir,
                                h->dir, h->dir, h->dir));
    net_hosts_expect_codes(h, 0, 0);
    assert_true(net_hosts_log_has(h, "b.log", "b.key has other ones now"));
    assert_int_equal(net_hosts_n_steps(h), STEPS);
}

static void test_hosts_refused__bad_input_is_refused(void **state)
{
    net_hosts *h = *state;
    static const struct {
        const char *arguments, *text;
    } cases[] = {
        {"run " NET_JOB "--hosts far.yaml",
         "far.yaml:2:5: hosts: entry 1, address: the first host, a, has the address 192.0.2.1, "
         "which this host has not; allowed: frostline run on the first host"},
        {"run " NET_JOB "--hosts far.yaml --set 'hosts=[{name: a, address: 127.0.0.1, devices: 1}, "
         "{name: b, address: 127.0.0.2, devices: 1}]'",
         "--hosts: the hosts of far.yaml replace the 2 hosts of the job; without --ssh, ssh starts "
         "no agents\n"},
        {"run " NET_JOB "--hosts far.yaml --listen tcp://127.0.0.1:5570",
         "the first host, a, has the address 192.0.2.1, which this host has not"},
        {"run " NET_JOB "--hosts hosts.yaml --listen tcp://192.0.2.1:5570",
         "--listen: cannot listen at tcp://192.0.2.1:5570"},
        {"run " NET_JOB "--hosts near.yaml",
         "near.yaml:2:5: hosts: entry 1, address: found 127.0.0.1, which leads other hosts to "
         "themselves; allowed: "},
        {"run " NET_JOB "--hosts back.yaml --listen tcp://127.0.0.1:5570",
         "entry 2, address: found 0.0.0.0, which means every address of a host; allowed: "},
        {"run " NET_JOB "--hosts any.yaml --listen tcp://127.0.0.1:5570",
         "any.yaml:2:36: hosts: entry 1, address: found 0.0.0.0, which means every address of a "
         "host; allowed: the IPv4 address of one host"},
        {"plan " NET_JOB "--cluster any.yaml",
         "any.yaml:2:36: hosts: entry 1, address: found 0.0.0.0, which means every address of a "
         "host; allowed: the IPv4 address of one host"},
        {"plan " NET_JOB "--cluster near.yaml",
         "near.yaml:2:5: hosts: entry 1, address: found 127.0.0.1, which leads other hosts to "
         "themselves; allowed: "},
        {"plan " NET_JOB "--set 'hosts=[{name: a, address: 10.0.0.1, devices: 1}, "
         "{name: b, address: 127.0.0.2, devices: 1}]'",
         "hosts: entry 2, address: found 127.0.0.2, which leads other hosts to themselves"},
        {"validate " NET_JOB "--set 'hosts=[{name: a, address: 127.0.0.1, devices: 1}, "
         "{name: b, address: b.invalid, devices: 1}]'",
         "hosts: entry 2, address: b.invalid: no IPv4 address"},
        {"run " NET_JOB "--hosts hosts.yaml --listen tcp://0.0.0.0:5570",
         "--listen: found 0.0.0.0, which means every address of a host; allowed: "},
        {"run " NET_JOB "--hosts hosts.yaml --listen 'tcp://*:5570'",
         "--listen: found *, which means every address of a host"},
        {"run " NET_JOB "--hosts hosts.yaml --listen 'tcp://[::]:5570'",
         "--listen: found [::], which means every address of a host"},
        {"run " NET_JOB "--hosts hosts.yaml --listen tcp://240.0.0.1:5570",
         "--listen: found 240.0.0.1, an address of 240.0.0.0/4 (class E), which no host has"},
        {"run " NET_JOB "--set 'hosts=[{name: a, address: 127.0.0.1, devices: 1}, "
         "{name: b, address: localhost, devices: 1}]'",
         "hosts: entry 2, address: found 127.0.0.1, which host a has, too"},
        {"run " NET_JOB "--listen tcp://127.0.0.1:5570", "--listen: the run has one host"},
        {"run " NET_JOB "--set 'hosts=[{name: a, address: 127.0.0.1, devices: 1}]'",
         "hosts: found a list of 1, allowed: none, or a list of 2 to 128 mappings"},
        {"run " NET_JOB "--set 'hosts=[{name: a, address: a.invalid, devices: 1}, "
         "{name: b, address: 127.0.0.1, devices: 1}]'",
         "hosts: entry 1, address: a.invalid: no IPv4 address"},
        {"run " NET_JOB "--set 'hosts=[{name: a, address: 127.0.0.1, devices: 1}, "
         "{name: b, address: \"fd00::2\", devices: 1}]'",
         "address: found fd00::2, an IPv6 address; allowed: the IPv4 address of one host"},
        {"run " NET_JOB "--hosts large.yaml --listen tcp://127.0.0.1:5570",
         "large.yaml:3:5: hosts: entry 2, memory: found 1.0 PiB, allowed: at most devices.memory"},
        {"run " NET_JOB "--hosts bare.yaml --listen tcp://127.0.0.1:5570",
         "bare.yaml:3:5: hosts: entry 2, address: found nothing, allowed: an IPv4 address"},
        {"run " NET_JOB "--hosts one.yaml --listen tcp://127.0.0.1:5570", "found one host"},
        {"run " NET_JOB "--hosts twice.yaml --listen tcp://127.0.0.1:5570",
         "hosts: entry 2, address: found 127.0.0.1 twice"},
        {"run " NET_JOB "--hosts name.yaml --listen tcp://127.0.0.1:5570",
         "address: found 'localhost', allowed: an IPv4 address"},
        {"run " NET_JOB "--hosts octal.yaml --listen tcp://127.0.0.1:5570", "octal.yaml:3:"},
        {"run " NET_JOB "--hosts many.yaml --listen tcp://127.0.0.1:5570",
         "many.yaml:3:36: hosts: entry 2, address: found 224.0.0.1, a multicast address"},
        {"run " NET_JOB "--hosts hosts.yaml --listen tcp://0127.0.0.1:5570",
         "--listen: found '0127.0.0.1', allowed: four decimal numbers"},
        {"agent --join tcp://127.0.0.1:5570 --key none --address 127.1",
         "--address: found '127.1', allowed: four decimal numbers"},
        {"agent --join tcp://127.1:5570 --key keys",
         "--join: found '127.1', allowed: four decimal numbers"},
        {"run " NET_JOB "--ssh", "--ssh: an option of --hosts, which is missing"},
        {"run " NET_JOB "--hosts hosts.yaml --listen 127.0.0.1", "allowed: tcp://ADDRESS:PORT"},
        {"run " NET_JOB "--hosts none.yaml --listen tcp://127.0.0.1:5570",
         "none.yaml: cannot be opened"},
        {"run " NET_JOB "--hosts hosts.yaml --listen tcp://127.0.0.1:5570 --set devices.count=3",
         "devices.count: found 3, but the hosts have 2 devices"},
        {"run " NET_JOB "--hosts hosts.yaml --listen tcp://127.0.0.1:5570 --set cache.policy=on "
         "--set cache.stores=2",
         "cache.stores: found 2, but host a has 1 device;"},
        {"run " NET_JOB "--hosts hosts.yaml --listen tcp://127.0.0.1:5570 --set devices.count=auto "
         "--set devices.max=1",
         "devices.max: found 1, but the hosts have 2 devices"},
        {"run --replay x --hosts hosts.yaml --listen tcp://127.0.0.1:5570",
         "--replay is given, too"},
        {"agent --key hosts.yaml", "--join ADDRESS is missing"},
        {"agent --join tcp://127.0.0.1:5570 --key keys --grace soon",
         "--grace: found 'soon', allowed: 0 to 86400 seconds"},
        {"agent --join tcp://127.0.0.1:5570 --key keys --grace -1", "--grace: found '-1'"},
        {"agent --join tcp://127.0.0.1:5570 --key keys --grace 86401", "--grace: found '86401'"},
        {"agent --join tcp://127.0.0.1:5570", "--key FILE is missing"},
        {"agent --join x --key hosts.yaml", "allowed: tcp://ADDRESS:PORT"},
        {"agent --join tcp://127.0.0.1:99999 --key keys",
         "--join: found 'tcp://127.0.0.1:99999', allowed: tcp://ADDRESS:PORT, with the head's "
         "address, and PORT from 1 to 65534"},
        {"agent --join tcp://127.0.0.1:0 --key keys", "PORT from 1 to 65534"},
        {"agent --join tcp://127.0.0.1 --key keys", "PORT from 1 to 65534"},
        {"agent --join tcp://0.0.0.0:5570 --key keys",
         "--join: found 0.0.0.0, which means every address of a host; allowed: the IPv4"},
        {"agent --join 'tcp://*:5570' --key keys", "--join: found *, which means every address"},
        {"agent --join 'tcp://[::1]:5570' --key keys", "--join: found [::1], an IPv6 loopback"},
        {"agent --join tcp://239.1.1.1:5570 --key keys", "--join: found 239.1.1.1, a multicast"},
        /* the keys come last: they may be typed */
        {"agent --join tcp://127.0.0.1:5570 --key none --devices 0", "--devices: found '0'"},
        {"agent --join tcp://127.0.0.1:5570 --key none --wait 0", "--wait: found '0'"},
        {"agent --join tcp://127.0.0.1:5570 --key none --address 192.0.2.1",
         "--address: found 192.0.2.1, which is no address of a network interface of this host; "
         "allowed: 127.0.0.1 (lo)"},
        {"agent --join tcp://127.0.0.1:5570 --key none --address 0.0.0.0",
         "--address: found 0.0.0.0, which means every address of a host; allowed: "},
        {"agent --join tcp://127.0.0.1:5570 --key none --address '::'",
         "--address: found ::, which means every address of a host"},
        {"agent --join tcp://127.0.0.1:5570 --key none --address 0.1.2.3",
         "--address: found 0.1.2.3, an address of 0.0.0.0/8, which no host has; allowed: "},
        {"agent --join tcp://192.0.2.1:5570 --key keys --address 127.0.0.1",
         "--address: found 127.0.0.1, which leads other hosts to themselves; allowed: "},
        {"agent --join tcp://127.0.0.1:5570 --key none --address b.invalid",
         "--address: b.invalid: no IPv4 address"},
        {"agent --join tcp://127.0.0.1:5570 --key hosts.yaml", "others may read this secret"},
        {"agent --join tcp://127.0.0.1:5570 --key private.yaml", "no keys found"},
        {"agent --join tcp://127.0.0.1:5570 --key keys --name ../../../esc",
         "--name: found '../../../esc', allowed: 1 to 63 letters, digits, '_', '-' and '.', the "
         "first not '-' or '.'"},
        {"agent --join tcp://127.0.0.1:5570 --key keys --name ''", "--name: found '', allowed"},
        {"agent --join tcp://127.0.0.1:5570 --key keys --name \"$(printf 'a\\nb')\"",
         "--name: found 'a\\012b', allowed"},
        {"agent --join tcp://127.0.0.1:5570 --key keys --name=-x", "--name: found '-x', allowed"},
    };
    assert_true(
        net_hosts_shell("cd %s && cp hosts.yaml private.yaml && chmod 600 private.yaml && "
                        "sed 's/devices: 1, address: 127.0.0.2/devices: 1, memory: 1048576GiB, "
                        "address: 127.0.0.2/' hosts.yaml > large.yaml && "
                        "sed 's/, address: 127.0.0.2//' hosts.yaml > bare.yaml && "
                        "sed '/name: b/d' hosts.yaml > one.yaml && "
                        "sed 's/127.0.0.2/127.0.0.1/' hosts.yaml > twice.yaml && "
                        "sed 's/127.0.0.2/localhost/' hosts.yaml > name.yaml && "
                        "sed 's/127.0.0.2/0127.0.0.2/' hosts.yaml > octal.yaml && "
                        "sed 's/127.0.0.2/224.0.0.1/' hosts.yaml > many.yaml && "
                        "sed 's/127.0.0.[12]/192.0.2.1/; s/b, devices: 1, address: 192.0.2.1/b, "
                        "devices: 1, address: 198.51.100.2/' hosts.yaml > far.yaml && "
                        "sed 's/127.0.0.2/192.0.2.1/' hosts.yaml > near.yaml && "
                        "sed 's/127.0.0.1/0.0.0.0/' hosts.yaml > any.yaml && "
                        "sed 's/127.0.0.2/0.0.0.0/' hosts.yaml > back.yaml && "
                        "'%s/frostline' key k && cat k.pub k > keys && chmod 600 keys",
                        h->dir, FL_BINARY_DIR));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char command[NET_HOSTS_TEXT];
        snprintf(command, sizeof command, "'%s/frostline' %s", FL_BINARY_DIR, cases[i].arguments);
        run_command(h->dir, command, &said);
        if (said.exit_code != 2 || strstr(said.err, cases[i].text) == NULL) {
            fail_msg("%s: exit code %d, %s", cases[i].arguments, said.exit_code, said.err);
        }
    }
}

/* Would catch: a line that the hosts of the job are replaced, before the file is looked for. */
static void test_hosts_refused__a_missing_file_replaces_nothing(void **state)
{
    net_hosts *h = *state;
    run_command(h->dir,
                "'" FL_BINARY_DIR "/frostline' run " NET_JOB "--hosts nofile.yaml "
                "--set 'hosts=[{name: a, address: 127.0.0.1, devices: 1}, "
                "{name: b, address: 127.0.0.2, devices: 1}]'",
                &said);
    assert_int_equal(said.exit_code, 2);
    assert_string_equal(said.err, "nofile.yaml: cannot be opened: No such file or directory\n");
}

/* Would catch: a plan that cannot be made where the names of the hosts are not known, and one that
 * says nothing of them. */
static void test_hosts_refused__a_plan_needs_no_names(void **state)
{
    net_hosts *h = *state;
    run_command(h->dir,
                "'" FL_BINARY_DIR "/frostline' plan " NET_JOB
                "--set pipe.profile=none --set 'hosts=[{name: a, address: a.invalid, devices: 1}, "
                "{name: b, address: b.invalid, devices: 1}]'",
                &said);
    if (said.exit_code != 0) {
        fail_msg("exit code %d: %s", said.exit_code, said.err);
    }
    assert_non_null(strstr(said.out, "host b: "));
    assert_non_null(strstr(said.err, "host a: a.invalid: no IPv4 address"));
    assert_null(strstr(said.err, "b.invalid"));
}

static int make_two(void **state)
{
    static const int n_devices[] = {1, 1};
    return net_hosts_set_up(state, 2, n_devices);
}

/* Would catch: addresses of many hosts, or of the head itself, for which the head starts and then
 * waits ten minutes, and numbers that a resolver reads as another address. */
static void test_hosts_refused__an_address_is_of_one_host(void **state)
{
    static const struct {
        const char *head, *other, *text;
    } cases[] = {
        {NULL, "224.0.0.1", "entry 2, address: found 224.0.0.1, a multicast address; allowed"},
        {NULL, "255.255.255.255", "entry 2, address: found 255.255.255.255, a broadcast address"},
        {"224.0.0.1", "192.0.2.1", "entry 1, address: found 224.0.0.1, a multicast address"},
        {"192.0.2.1", "10.9.8.1",
         "entry 1, address: the first host, a, has the address 192.0.2.1, which this host has not; "
         "this host is b; allowed: frostline run on the first host"},
        {"10.9.8.255", "192.0.2.1",
         "entry 1, address: found 10.9.8.255, which is no address of a network interface of this "
         "host; allowed: "},
        {"10.9.8.1", "10.9.8.255",
         "entry 2, address: found 10.9.8.255, the broadcast address of more of this host, which is "
         "the first one; allowed: "},
        {NULL, "10.9.8.1",
         "entry 2, address: found 10.9.8.1, an address of more of this host, which is the first "
         "one; allowed: an address of that other host"},
    };
    net_hosts *h = *state;
    NET_NEED(h);
    assert_true(net_hosts_shell("ip -n %s link add more type bridge && ip -n %s addr add "
                                "10.9.8.1/24 dev more && ip -n %s link set more up",
                                h->host[0].space, h->host[0].space, h->host[0].space));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *head = cases[i].head == NULL ? h->host[0].address : cases[i].head;
        assert_false(net_hosts_shell("timeout 60 ip netns exec %s '%s/frostline' run " NET_JOB
                                     "--run-dir %s/run --set 'hosts=[{name: a, address: %s, "
                                     "devices: 1}, {name: b, address: %s, devices: 1}]' 2>&1",
                                     h->host[0].space, FL_BINARY_DIR, h->dir, head,
                                     cases[i].other));
        if (strstr(net_hosts_said(), cases[i].text) == NULL) {
            fail_msg("%s, %s: %s", head, cases[i].other, net_hosts_said());
        }
    }
}

/* Would catch: tasks of an engine on several hosts that meet at their own loopback interfaces. */
static void test_hosts_refused__the_loopback_interface_is_no_network(void **state)
{
    net_hosts *h = *state;
    char command[NET_HOSTS_TEXT];
    snprintf(command, sizeof command,
             "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=1 "
             "PMIX_NAMESPACE=one '%s/frostline' run " NET_JOB "--run-dir %s/run --interface lo",
             FL_BINARY_DIR, h->dir);
    run_command(h->dir, command, &said);
    assert_int_equal(said.exit_code, 2);
    assert_non_null(strstr(said.err,
                           "--interface: found lo (127.0.0.1), which leads other hosts to "
                           "themselves; allowed: "));
}

/* A port of this host. */
static int listen_at(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 8) == 0 &&
                getsockname(fd, (struct sockaddr *)&at, &size) == 0);
    *port = ntohs(at.sin_port);
    return fd;
}

/* Would catch: a connection that ends early and is taken for another key, which ends a Job of
 * Kubernetes for good. */
static void test_hosts_refused__a_closed_connection_is_no_refusal(void **state)
{
    net_hosts *h = *state;
    char arguments[NET_HOSTS_TEXT];
    int port, how = 0, n = 0, fd = listen_at(&port);
    assert_true(net_hosts_shell("cd %s && '%s/frostline' key k && cat k.pub k > keys && "
                                "chmod 600 keys",
                                h->dir, FL_BINARY_DIR));
    snprintf(arguments, sizeof arguments, "agent --key %s/keys --join tcp://127.0.0.1:%d --wait 2",
             h->dir, port);
    pid_t agent = net_hosts_start(h, 1, "b.log", arguments);
    while (waitpid(agent, &how, WNOHANG) == 0) {
        struct pollfd item = {.fd = fd, .events = POLLIN};
        int taken = poll(&item, 1, 20) == 1 ? accept(fd, NULL, NULL) : -1;
        if (taken >= 0) {
            close(taken);
            n++;
        }
    }
    close(fd);
    assert_true(n > 3);
    assert_int_equal(WIFEXITED(how) ? WEXITSTATUS(how) : -1, 3);
    assert_true(net_hosts_log_has(h, "b.log", "no answer from tcp://127.0.0.1"));
}

/* An agent that waits for a head that is not there. Would catch: a SIGTERM that it does not hear,
 * a code that keeps a scheduler from another try, a wait without its end, and a message that does
 * not say what to open in a firewall. */
static void test_hosts_refused__a_head_that_is_not_there(void **state)
{
    net_hosts *h = *state;
    char arguments[NET_HOSTS_TEXT];
    assert_true(net_hosts_shell("cd %s && '%s/frostline' key k && cat k.pub k > keys && "
                                "chmod 600 keys",
                                h->dir, FL_BINARY_DIR));
    snprintf(arguments, sizeof arguments, "agent --key %s/keys --join tcp://127.0.0.1:1 --wait 1",
             h->dir);
    pid_t agent = net_hosts_start(h, 1, "b.log", arguments);
    assert_int_equal(net_hosts_await_exit(&agent), 3);
    assert_true(net_hosts_log_has(h, "b.log",
                                  "no answer from tcp://127.0.0.1:1 in 1 s; the head must listen "
                                  "there, and TCP from this host to its ports 1 and 2 must get "
                                  "through the firewall (--listen of "));
    snprintf(arguments, sizeof arguments,
             "agent --key %s/keys --join tcp://head.invalid:5570 --wait 600", h->dir);
    agent = net_hosts_start(h, 1, "b.log", arguments);
    NET_AWAIT(
        net_hosts_log_has(h, "b.log", "waits for the address of head.invalid (host 1 of 1), "));
    assert_true(net_hosts_log_has(h, "b.log", " s at most (Ctrl-C ends it)"));
    kill(agent, SIGTERM);
    assert_int_equal(net_hosts_await_exit(&agent), 5);
}

#define LOOPBACK(test) cmocka_unit_test_setup_teardown(test, make_loopback, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LOOPBACK(test_hosts_refused__strangers_are_refused),
        LOOPBACK(test_hosts_refused__a_stale_key_is_read_again),
        LOOPBACK(test_hosts_refused__bad_input_is_refused),
        LOOPBACK(test_hosts_refused__a_missing_file_replaces_nothing),
        LOOPBACK(test_hosts_refused__a_plan_needs_no_names),
        cmocka_unit_test_setup_teardown(test_hosts_refused__an_address_is_of_one_host, make_two,
                                        net_hosts_tear_down),
        LOOPBACK(test_hosts_refused__the_loopback_interface_is_no_network),
        LOOPBACK(test_hosts_refused__a_closed_connection_is_no_refusal),
        LOOPBACK(test_hosts_refused__a_head_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
