/* Files of hosts and links: what they mean, and what each bad one is told. */
#include "launcher/job/cluster_file.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static fl_cluster_file file;

static fl_status parse(const char *text)
{
    return fl_cluster_file_parse("c.yaml", text, strlen(text), &file);
}

static void test_cluster_file__reads_hosts_and_links(void **state)
{
    (void)state;
    assert_int_equal(parse("hosts:\n"
                           "  - {name: a, devices: 2}\n"
                           "  - {name: b, devices: 3, sockets: 2, memory: 4GiB, speed: 0.5, "
                           "profile: b.yaml}\n"
                           "links:\n"
                           "  within_host: {latency_us: 5, bandwidth: 8GiB, all_reduce: 2GiB}\n"
                           "  between_hosts: {latency_us: 30.5, bandwidth: 1000000B}\n"),
                     FL_OK);
    const fl_cluster *c = &file.cluster;
    assert_int_equal(c->n_devices, 5);
    assert_int_equal(c->n_hosts, 2);
    assert_int_equal(c->n_sockets, 3);
    assert_memory_equal(c->host_of, ((int[]){0, 0, 1, 1, 1}), 5 * sizeof(int));
    assert_memory_equal(c->socket_of, ((int[]){0, 0, 1, 1, 2}), 5 * sizeof(int));
    assert_true(c->speed[1] == 1.0 && c->speed[4] == 0.5);
    assert_true(c->memory_bytes[0] == 0 && c->memory_bytes[2] == (int64_t)4 << 30);
    assert_string_equal(file.name[1], "b");
    assert_string_equal(file.profile[0], "");
    assert_string_equal(file.profile[1], "b.yaml");
    assert_true(c->link[FL_LINK_SOCKET].bytes_per_us == 0.0); /* the profile's */
    assert_true(c->link[FL_LINK_HOSTS].latency_us == 30.5);
    assert_true(fabs(c->link[FL_LINK_HOSTS].bytes_per_us - 1.0) < 1e-12);
    assert_true(fabs(c->link[FL_LINK_HOSTS].reduce_bytes_per_us - 1.0) < 1e-12);
    const fl_link_cost *near = &c->link[FL_LINK_HOST];
    assert_true(fabs(near->bytes_per_us - 4.0 * near->reduce_bytes_per_us) < 1e-9);
}

static void test_cluster_file__one_host_needs_no_links(void **state)
{
    (void)state;
    assert_int_equal(parse("hosts: [{name: a, devices: 1}]\n"), FL_OK);
}

static void test_cluster_file__the_example_is_two_hosts_of_eight(void **state)
{
    (void)state;
    assert_int_equal(fl_cluster_file_load(FL_SOURCE_DIR "/configs/cluster-2x8.yaml", &file), FL_OK);
    assert_int_equal(file.cluster.n_hosts, 2);
    assert_int_equal(file.cluster.n_devices, 16);
}

#define LINKS "links: {between_hosts: {latency_us: 1, bandwidth: 1GiB}}\n"
#define TWO "hosts: [{name: a, devices: 1}, {name: b, devices: 1}]\n"

static const struct {
    const char *text, *message; /* what it must contain */
} bad[] = {
    {"", "c.yaml:1:1: cluster: found nothing"},
    {"- 1\n", "c.yaml:1:1: cluster: found a list, allowed: a mapping with hosts, links"},
    {"nodes: 1\n", "c.yaml:1:1: cluster: found 'nodes', allowed: hosts, links"},
    {"{}\n", "c.yaml:1:1: cluster: found no hosts"},
    {"hosts: []\n",
     "c.yaml:1:8: hosts: found an empty list, allowed: a list of 1 to 1024 mappings with name"},
    {"hosts: 4\n", "c.yaml:1:8: hosts: found '4', allowed: a list of 1 to 1024 mappings with name"},
    {"hosts: [4]\n",
     "c.yaml:1:9: hosts: entry 1: found '4', allowed: a mapping with name, devices"},
    {"hosts: [{name: a}]\n",
     "c.yaml:1:9: hosts: entry 1: found no devices, allowed: an entry with devices: an"},
    {"hosts: [{devices: 4}]\n", "c.yaml:1:9: hosts: entry 1: found no name, allowed"},
    {"hosts: [{name: a, devices: 0}]\n",
     "c.yaml:1:28: hosts: entry 1, devices: found '0', allowed"},
    {"hosts: [{name: a, devices: 1025}]\n", "c.yaml:1:28: hosts: entry 1, devices: found '1025'"},
    {"hosts: [{name: a, devices: two}]\n", "c.yaml:1:28: hosts: entry 1, devices: found 'two'"},
    {"hosts: [{name: a, devices: '2'}]\n",
     "c.yaml:1:28: hosts: entry 1, devices: found the text '2'"},
    {"hosts: [{name: a, devices: }]\n",
     "hosts: entry 1, devices: found nothing, allowed: an integer"},
    {"hosts: [{name: a, devices: [2]}]\n", "c.yaml:1:28: hosts: entry 1, devices: found a list"},
    {"hosts: [{name: a, name: b, devices: 1}]\n", "c.yaml:1:19: hosts: entry 1, name: repeated"},
    {"hosts: [{name: a, devices: 1, gpus: 1}]\n",
     "c.yaml:1:31: hosts: entry 1: unknown key 'gpus', an entry has name"},
    {"hosts: [{name: a, devices: 1, sockets: 2}]\n",
     "hosts: entry 1, sockets: found 2, allowed: at most its 1"},
    {"hosts: [{name: a, devices: 1, memory: 1}]\n",
     "c.yaml:1:39: hosts: entry 1, memory: found '1'"},
    {"hosts: [{name: a, devices: 1, speed: 0}]\n", "c.yaml:1:38: hosts: entry 1, speed: found '0'"},
    {"hosts: [{name: a, devices: 1, speed: -1}]\n", "hosts: entry 1, speed: found '-1'"},
    {"hosts: [{name: a, devices: 1, speed: nan}]\n", "hosts: entry 1, speed: found 'nan'"},
    {"hosts: [{name: a, devices: 1}, {name: a, devices: 1}]\n" LINKS,
     "c.yaml:1:32: hosts: entry 2, name: found a twice, allowed: names that differ"},
    {"hosts: [{name: a, devices: 1, address: 'fd00::2'}]\n",
     "c.yaml:1:40: hosts: entry 1, address: found fd00::2, an IPv6 address; allowed: the IPv4 "
     "address of one host"},
    {"hosts: [{name: a, devices: 1, address: b.example}]\n",
     "c.yaml:1:40: hosts: entry 1, address: found 'b.example', allowed: an IPv4 address, as "},
    {"hosts: [{name: a, devices: 1, address: 10.0.0.1}, {name: b, devices: 1, address: 127.0.0.2}]"
     "\n",
     "c.yaml:1:51: hosts: entry 2, address: found 127.0.0.2, which leads other hosts to "
     "themselves; allowed: its address in the network of the hosts"},
    {"hosts: [{name: a, devices: 1000}, {name: b, devices: 25}]\n" LINKS,
     "c.yaml:1:35: hosts: entry 2, devices: found 1025 devices up to here, allowed: at most 1024"},
    {TWO "links: 3\n", "c.yaml:2:8: links: found '3', allowed: a mapping with within_socket"},
    {TWO "links: {wifi: {}}\n", "c.yaml:2:9: links: found 'wifi', allowed: within_socket"},
    {TWO "links: {between_hosts: 3}\n", "c.yaml:2:24: links.between_hosts: found '3', allowed"},
    {TWO "links: {between_hosts: {latency_us: 1}}\n", "links.between_hosts: found no bandwidth"},
    {TWO "links: {between_hosts: {latency_us: -1, bandwidth: 1GiB}}\n",
     "c.yaml:2:37: links.between_hosts.latency_us: found '-1'"},
    {TWO "links: {between_hosts: {latency_us: 1, bandwidth: 0B}}\n",
     "links.between_hosts.bandwidth: found '0B'"},
    {TWO LINKS LINKS, "c.yaml:3:1: links: repeated"},
    {TWO TWO LINKS, "c.yaml:2:1: hosts: repeated"},
    {"hosts: [&a {name: a, devices: 1}, *a]\n", "yaml: found an anchor"},
    {"hosts: [{name: a, devices: 1}\n", "yaml: "},
    {"hosts:\n\t- a\n", "c.yaml:2:1: yaml: found a tab"},
};

static void test_cluster_file__bad_files_get_one_line_with_its_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fl_status status = parse(bad[i].text);
        const char *message = fl_errmsg();
        if (status != FL_EINVAL || strstr(message, bad[i].message) == NULL) {
            print_message("%s\n-> %d %s\n   wanted: %s\n", bad[i].text, status, message,
                          bad[i].message);
        }
        assert_int_equal(status, FL_EINVAL);
        assert_non_null(strstr(message, bad[i].message));
        assert_null(strchr(message, '\n'));
        assert_true(strncmp(message, "c.yaml:", 7) == 0);
    }
}

/* A run measures them; a plan without a run assumes them. */
static void test_cluster_file__links_between_hosts_may_be_absent(void **state)
{
    (void)state;
    assert_int_equal(parse(TWO), FL_OK);
    assert_true(file.cluster.link[FL_LINK_HOSTS].bytes_per_us == 0.0);
    assert_int_equal(parse(TWO LINKS), FL_OK);
    assert_true(file.cluster.link[FL_LINK_HOSTS].bytes_per_us > 0.0);
}

static void test_cluster_file__a_missing_file_is_named(void **state)
{
    (void)state;
    assert_int_equal(fl_cluster_file_load("/nowhere/c.yaml", &file), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "/nowhere/c.yaml: cannot be opened"));
    assert_int_equal(fl_cluster_file_load("/", &file), FL_EIO); /* a folder */
}

/* Would catch: a printed command that finds the file in one folder only. */
static void test_cluster_file__has_an_absolute_path(void **state)
{
    (void)state;
    char whole[PATH_MAX];
    assert_int_equal(chdir(FL_SOURCE_DIR), 0);
    assert_non_null(realpath("configs/cluster-2x8.yaml", whole));
    assert_int_equal(fl_cluster_file_load("configs/cluster-2x8.yaml", &file), FL_OK);
    assert_string_equal(file.path, whole);
    assert_string_equal(file.written_in, "configs/cluster-2x8.yaml");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cluster_file__reads_hosts_and_links),
        cmocka_unit_test(test_cluster_file__one_host_needs_no_links),
        cmocka_unit_test(test_cluster_file__the_example_is_two_hosts_of_eight),
        cmocka_unit_test(test_cluster_file__bad_files_get_one_line_with_its_place),
        cmocka_unit_test(test_cluster_file__links_between_hosts_may_be_absent),
        cmocka_unit_test(test_cluster_file__a_missing_file_is_named),
        cmocka_unit_test(test_cluster_file__has_an_absolute_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
