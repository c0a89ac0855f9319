/* frostline doctor: how other hosts are judged, by their answers and the links between them. */
#include "launcher/doctor/checks/doctor.h"
#include "launcher/doctor/hosts/host_links.h"
#include "launcher/doctor/hosts/hosts.h"
#include "support/findings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Would catch: a host with one worker, which trains without the loopback interface, that is
 * refused; and one with two that passes. */
static void test_doctor_others__two_workers_of_a_host_need_loopback(void **state)
{
    (void)state;
    fl_findings findings = {0};
    fl_finding_advise(fl_finding_add(&findings, FL_VERDICT_WARNING, "sockets", "dropped"), "mend");
    fl_finding_advise(fl_finding_add(&findings, FL_VERDICT_WARNING, "sharing", "no"), "allow");
    fl_doctor_compare_sockets("b", 0, &findings);
    fl_doctor_compare_sockets("b", 1, &findings);
    assert_verdict(&findings, "sockets", FL_VERDICT_WARNING);
    fl_doctor_compare_sockets("b", 2, &findings);
    fl_doctor_compare_sockets("b", 2, &findings);
    assert_verdict(&findings, "sockets", FL_VERDICT_ERROR);
    assert_string_equal(findings.of[0].found, "dropped; the 2 workers of host b need it");
    assert_verdict(&findings, "sharing", FL_VERDICT_WARNING);
    findings = (fl_findings){0};
    fl_finding_add(&findings, FL_VERDICT_OK, "sockets", "TCP");
    fl_doctor_compare_sockets(NULL, 2, &findings);
    assert_verdict(&findings, "sockets", FL_VERDICT_OK);
}

/* Of another host. */
static fl_findings take(const char *answer)
{
    fl_doctor_host host = {.name = "b"};
    bool taken = fl_doctor_take_answer(answer, strlen(answer), 1000.0, &host);
    assert_int_equal(taken, host.answer != NULL);
    assert_int_equal(taken, host.findings.n > 0);
    for (int i = 0; i < host.findings.n; i++) { /* they borrow from what is freed */
        fl_finding *f = &host.findings.of[i];
        f->check = strcmp(f->check, "memory") == 0    ? "memory"
                   : strcmp(f->check, "same") == 0    ? "same"
                   : strcmp(f->check, "apart") == 0   ? "apart"
                   : strcmp(f->check, "unnamed") == 0 ? "unnamed"
                                                      : "?";
    }
    fl_findings findings = host.findings;
    fl_doctor_hosts_fini(&host, 1);
    return findings;
}

/* Catches a host that has fewer GPUs than the run would use and passes, and the line that says why
 * there is none which counts as one. */
static void test_doctor_others__hosts_have_the_gpus_of_the_file(void **state)
{
    (void)state;
    fl_findings f = {0};
    fl_finding_add(&f, FL_VERDICT_OK, "GPUs", "0: Stand-in, 16 GiB");
    fl_finding_add(&f, FL_VERDICT_OK, "memory", "1 GiB");
    fl_doctor_compare_gpus("b", 1, &f);
    assert_int_equal(f.n, 2);
    fl_doctor_compare_gpus("b", 2, &f);
    assert_int_equal(fl_findings_verdict(&f), FL_VERDICT_ERROR);
    assert_string_equal(f.of[2].found, "found 1 GPU, but the run has 2 devices on host b");
    f = (fl_findings){0};
    fl_finding_add(&f, FL_VERDICT_OK, "GPUs", "no NVIDIA driver");
    fl_doctor_compare_gpus("c", 1, &f);
    assert_string_equal(f.of[1].found, "found 0 GPUs, but the run has 1 device on host c");
}

/* Would catch: a host with another version or another time that passes, and an answer that is
 * believed although it is none. */
static void test_doctor_others__another_host_is_compared_with_this_one(void **state)
{
    (void)state;
    fl_findings f = take("{\"version\": \"" FL_VERSION "\", \"checks\": [{\"check\": \"memory\", "
                         "\"verdict\": \"warning\", \"found\": \"little\", \"advice\": \"buy\"}], "
                         "\"time\": 999.8}");
    assert_int_equal(f.n, 3);
    assert_verdict(&f, "memory", FL_VERDICT_WARNING);
    assert_string_equal(find_check(&f, "memory")->advice, "buy");
    assert_verdict(&f, "same", FL_VERDICT_OK);
    assert_verdict(&f, "apart", FL_VERDICT_OK);
    assert_non_null(strstr(find_check(&f, "apart")->found, "0.20 s behind this host's"));
    f = take("{\"version\": \"0\", \"checks\": [{\"check\": \"\\u001b[2J\", \"verdict\": \"?\"}], "
             "\"time\": 1003}");
    assert_verdict(&f, "same", FL_VERDICT_ERROR);
    assert_verdict(&f, "apart", FL_VERDICT_WARNING);
    assert_non_null(strstr(find_check(&f, "apart")->found, "3.00 s ahead of"));
    assert_int_equal(find_check(&f, "unnamed")->verdict, FL_VERDICT_ERROR);
    f = take("{\"version\": \"0\", \"checks\": [7, {\"check\": \"\"}, {\"check\": "
             "\"0123456789012345678901234567890123\"}]}");
    assert_int_equal(f.n, 5);
    for (int i = 0; i < 3; i++) {
        assert_string_equal(f.of[i].check, "unnamed");
    }
    static const char *const none[] = {"", "{", "[]", "{\"checks\": 7}", "no such command"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_int_equal(take(none[i]).n, 0);
    }
    f = take("{\"version\": \"" FL_VERSION "\", \"checks\": []}"); /* without a time */
    assert_verdict(&f, "apart", FL_VERDICT_WARNING);
}

/* Would catch: a line of ~/.bashrc, or of a banner, for which a good host counts as broken. */
static void test_doctor_others__what_a_shell_prints_is_skipped(void **state)
{
    (void)state;
    static const char *const around[][2] = {{"hello\n", ""},
                                            {"hello", "\nbye"},
                                            {"\r\n\033[1mhost {b}\r\n", "{"},
                                            {"{\"checks\": 7}\n", "\n{}"},
                                            {"{\"a\": {", "}}"}};
    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "%s{\"version\": \"" FL_VERSION "\", \"checks\": [{\"check\": \"memory\", "
                 "\"verdict\": \"ok\", \"found\": \"{}\"}], \"time\": 1000}\n%s",
                 around[i][0], around[i][1]);
        fl_findings f = take(text);
        assert_int_equal(f.n, 3);
        assert_verdict(&f, "memory", FL_VERDICT_OK);
        assert_verdict(&f, "same", FL_VERDICT_OK);
    }
}

/* Objects in objects, n deep, and the rest; the inner ones are not closed. */
static fl_findings take_after(int n, const char *rest)
{
    static const char open[] = "{\"a\":";
    size_t size_bytes = sizeof open - 1, length = strlen(rest);
    char *text = malloc((size_t)n * size_bytes + length + 1);
    assert_non_null(text);
    for (int i = 0; i < n; i++) {
        memcpy(text + (size_t)i * size_bytes, open, size_bytes);
    }
    memcpy(text + (size_t)n * size_bytes, rest, length + 1);
    fl_findings f = take(text);
    free(text);
    return f;
}

/* Would catch: an answer of many nested objects, each of which is read again to the end, that keeps
 * the head busy for many seconds. */
static void test_doctor_others__the_search_for_an_answer_is_bounded(void **state)
{
    (void)state;
    static const char answer[] =
        "{\"version\": \"" FL_VERSION "\", \"checks\": [], \"time\": 1000}";
    assert_int_equal(take_after(10, answer).n, 2);
    assert_int_equal(take_after(20000, answer).n, 0);
}

/* Would catch: a pair that cannot talk, or is much slower than plans assume, and is called good. */
static void test_doctor_others__links_between_hosts_are_compared_with_the_file(void **state)
{
    (void)state;
    static const char text[] =
        "hosts: [{name: a, devices: 1, address: 10.0.0.1}, {name: b, devices: 1, address: "
        "10.0.0.2}, {name: c, devices: 1, address: 10.0.0.3}]\n"
        "links: {between_hosts: {latency_us: 50, bandwidth: 1000000000B}}\n";
    static fl_cluster_file file;
    static fl_host_survey found;
    fl_findings findings = {0};
    assert_int_equal(fl_cluster_file_parse("c.yaml", text, strlen(text), &file), FL_OK);
    found.n = 3;
    found.host[0].joined = found.host[1].joined = found.host[2].silent = true;
    snprintf(found.host[2].why, sizeof found.host[2].why, "it has not come");
    found.n_pairs = 3;
    found.pair[0] = (fl_host_link){.a = 0, .b = 1, .reached = true, .link = {60, {600, 700}, 600}};
    found.pair[1] = (fl_host_link){
        .a = 0, .b = 2, .stage = FL_HOST_LINK_UNCONNECTED, .why = "no connection in 5 s"};
    found.pair[2] = (fl_host_link){.a = 1, .b = 2, .reached = true, .link = {60, {600, 400}, 600}};
    fl_doctor_judge_links(&file, &found, FL_SECURITY_TLS, &findings);
    assert_int_equal(findings.n, 5);
    assert_verdict(&findings, "head", FL_VERDICT_ERROR);
    assert_non_null(strstr(findings.of[0].found, "host c (10.0.0.3): it has not come"));
    assert_int_equal(findings.of[1].verdict, FL_VERDICT_OK);
    assert_int_equal(findings.of[2].verdict, FL_VERDICT_ERROR);
    assert_non_null(strstr(findings.of[2].found, "a (10.0.0.1) and c (10.0.0.3): no connection"));
    assert_int_equal(findings.of[3].verdict, FL_VERDICT_WARNING); /* one direction is slow */
    assert_non_null(strstr(findings.of[3].advice, "links.between_hosts"));
    assert_non_null(strstr(findings.of[4].found, "2 pairs measured; the worst of each: 60 us"));
    assert_non_null(strstr(findings.of[2].advice, "firewall, or set autodp.ports"));
    findings.n = 0;
    fl_doctor_judge_links(&file, &found, FL_SECURITY_NONE, &findings); /* refuses autodp.ports */
    assert_non_null(strstr(findings.of[2].advice, "firewall, or give addresses"));
    file.cluster.link[FL_LINK_HOSTS] = (fl_link_cost){0}; /* nothing is stated */
    findings.n = 0;
    found.pair[1].stage = FL_HOST_LINK_UNMET; /* no connection was tried */
    fl_doctor_judge_links(&file, &found, FL_SECURITY_TLS, &findings);
    assert_int_equal(findings.of[3].verdict, FL_VERDICT_OK);
    assert_string_equal(findings.of[2].advice, "");
    findings.n = 0;
    found.pair[1].stage = FL_HOST_LINK_NO_PORT; /* no firewall is to blame */
    fl_doctor_judge_links(&file, &found, FL_SECURITY_TLS, &findings);
    assert_null(strstr(findings.of[2].advice, "firewall"));
    assert_non_null(strstr(findings.of[2].advice, "autodp.ports"));
}

/* Would catch: advice on a firewall for a host whose agent has reached the head, or has ended. */
static void test_doctor_others__only_a_silent_host_may_be_behind_a_firewall(void **state)
{
    (void)state;
    static const struct {
        bool unfit, silent;
        const char *why, *advice;
    } table[] = {
        {true, false, "it has frostline 0.2.0, and the head 0.1.0", "the same version"},
        {false, true, "its agent has not reached the head in 20 s", "through the firewall"},
        {false, false, "ssh, which was to start its agent, ended", "correct what ended it"},
    };
    static const char text[] = "hosts: [{name: a, devices: 1, address: 10.0.0.1}, {name: b, "
                               "devices: 1, address: 10.0.0.2}]\n";
    static fl_cluster_file file;
    static fl_host_survey found;
    assert_int_equal(fl_cluster_file_parse("c.yaml", text, strlen(text), &file), FL_OK);
    found.n = 2;
    found.host[0].joined = true;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        fl_findings findings = {0};
        found.host[1].unfit = table[i].unfit;
        found.host[1].silent = table[i].silent;
        snprintf(found.host[1].why, sizeof found.host[1].why, "%s", table[i].why);
        fl_doctor_judge_links(&file, &found, FL_SECURITY_TLS, &findings);
        assert_int_equal(findings.n, 1);
        assert_verdict(&findings, "head", FL_VERDICT_ERROR);
        assert_non_null(strstr(findings.of[0].found, table[i].why));
        assert_non_null(strstr(findings.of[0].advice, table[i].advice));
        assert_true((strstr(findings.of[0].advice, "firewall") != NULL) == table[i].silent);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doctor_others__two_workers_of_a_host_need_loopback),
        cmocka_unit_test(test_doctor_others__hosts_have_the_gpus_of_the_file),
        cmocka_unit_test(test_doctor_others__another_host_is_compared_with_this_one),
        cmocka_unit_test(test_doctor_others__what_a_shell_prints_is_skipped),
        cmocka_unit_test(test_doctor_others__the_search_for_an_answer_is_bounded),
        cmocka_unit_test(test_doctor_others__links_between_hosts_are_compared_with_the_file),
        cmocka_unit_test(test_doctor_others__only_a_silent_host_may_be_behind_a_firewall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
