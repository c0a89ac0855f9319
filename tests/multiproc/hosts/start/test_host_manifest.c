/* What frostline manifest writes, started as Kubernetes would: each pod is a network name space
 * with a root of its own, in which the volumes of the manifest are at the paths that it names, and
 * runs the container's command with its arguments. Would catch: a command that does not start, a
 * path that no volume has, names that do not resolve yet when a pod begins, keys that a pod lacks,
 * and a probe that fails while the run trains. Without the right to make name spaces, the tests are
 * skipped. */
#include "support/formats/yaml_text.h"
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { COMPARED = 10, PODS = 3, TEXT = 64 * 1024 };

#define POD "template.spec."
#define BOX POD "containers.0."
#define ENDLESS "--set train.epochs=1000 "
#define APART "--set run.shared=false "
#define CLAIM "--claim disk "
#define ALONE "--set train.max_steps=10 --set data.path='" FL_TEST_FASHION_WHOLE "'" /* as pods */

static int make_three(void **state)
{
    return net_hosts_set_up(state, PODS, (const int[]){1, 1, 1});
}

/* ---- files ---- */

static void write_file(const char *dir, const char *name, mode_t mode, const char *text)
{
    char path[FOLDER_SIZE + 64];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0 && fclose(file) == 0 && chmod(path, mode) == 0);
}

static void put_quoted(FILE *file, const char *word)
{
    char text[TEXT];
    yaml_expanded(word, text, sizeof text);
    fputs(" '", file);
    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\'') {
            fputs("'\\''", file);
        } else {
            fputc(*c, file);
        }
    }
    fputs("'", file);
}

static void put_list(FILE *file, json_t *words)
{
    for (size_t i = 0; i < json_array_size(words); i++) {
        put_quoted(file, json_string_value(json_array_get(words, i)));
    }
}

/* The item of a list with this name. */
static json_t *item_of(json_t *list, const char *name)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *item = json_array_get(list, i);
        if (strcmp(yaml_text(item, "name"), name) == 0) {
            return item;
        }
    }
    fail_msg("there is no %s", name);
    return NULL;
}

/* ---- volumes ---- */

/* DIR/VOLUME-a/FILE */
static void write_shown(const net_hosts *h, int i, const char *volume, const char *file,
                        mode_t mode, json_t *text)
{
    char name[128];
    assert_true(json_is_string(text));
    snprintf(name, sizeof name, "%s-%s/%s", volume, h->host[i].name, file);
    write_file(h->dir, name, mode, json_string_value(text));
}

static json_t *object_of(json_t *documents, const char *kind, const char *name)
{
    json_t *object = yaml_of_kind(documents, kind);
    assert_non_null(object);
    assert_string_equal(yaml_text(object, "metadata.name"), name);
    return object;
}

/* What a volume of the pod holds: the data of the ConfigMap or the items of the Secret that it
 * names; otherwise nothing. */
static void write_volume(const net_hosts *h, json_t *documents, json_t *volume, int i)
{
    const char *name = yaml_text(volume, "name"), *key;
    json_t *map = yaml_at(volume, "configMap"), *secret = yaml_at(volume, "secret"), *text, *item;
    size_t k;
    if (yaml_at(volume, "persistentVolumeClaim") !=
        NULL) { /* all pods have that of the first one */
        assert_true(net_hosts_shell("cd %s && mkdir -p %s-a && { [ %d = 0 ] || ln -s %s-a %s-%s; }",
                                    h->dir, name, i, name, name, h->host[i].name));
        return;
    }
    assert_true(net_hosts_shell("mkdir %s/%s-%s", h->dir, name, h->host[i].name));
    if (map != NULL) {
        json_t *object = object_of(documents, "ConfigMap", yaml_text(map, "name"));
        json_object_foreach(yaml_at(object, "data"), key, text)
        {
            write_shown(h, i, name, key, 0644, text);
        }
    } else if (secret != NULL) {
        json_t *object = object_of(documents, "Secret", yaml_text(secret, "secretName"));
        json_t *data = yaml_at(object, "stringData");
        mode_t mode = (mode_t)strtol(yaml_text(secret, "defaultMode"), NULL, 10);
        json_array_foreach(yaml_at(secret, "items"), k, item)
        {
            write_shown(h, i, name, yaml_text(item, "path"), mode,
                        json_object_get(data, yaml_text(item, "key")));
        }
    } else {
        assert_non_null(yaml_at(volume, "emptyDir"));
    }
}

/* Files of a Secret are on a tmpfs, and here they are as with fsGroup. */
static void put_mount(FILE *file, const net_hosts *h, json_t *spec, json_t *mount, int i)
{
    const char *volume = yaml_text(mount, "name"), *path = yaml_text(mount, "mountPath");
    json_t *sub = yaml_at(mount, "subPath");
    bool is_secret = yaml_at(item_of(yaml_at(spec, POD "volumes"), volume), "secret") != NULL;
    assert_int_equal(strspn(path, "abcdefghijklmnopqrstuvwxyz/."), strlen(path));
    fprintf(file, "from=%s/%s-%s to=$root%s\n", h->dir, volume, h->host[i].name, path);
    if (sub != NULL) {
        fprintf(file, "mkdir -p ${to%%/*} && touch $to && mount --bind $from/%s $to\n",
                json_string_value(sub));
    } else if (is_secret) {
        fputs("mkdir -p $to && mount -t tmpfs none $to && cp $from/* $to/\n"
              "chown 0:4242 $to/* && chmod 0440 $to/*\n",
              file);
    } else {
        fputs("mkdir -p $to && mount --bind $from $to\n", file);
    }
}

/* ---- the root of a pod ---- */

/* " | /work": the first folder of each path at which a volume is. */
static void put_tops(FILE *file, json_t *mounts)
{
    json_t *mount;
    size_t k;
    json_array_foreach(mounts, k, mount)
    {
        const char *path = yaml_text(mount, "mountPath");
        fprintf(file, " | %.*s", (int)(1 + strcspn(path + 1, "/")), path);
    }
}

/* DIR/pod-a.sh: a root with the folders of this machine where no volume is, the volumes at the
 * paths that the manifest names, then the command. */
static void write_pod(const net_hosts *h, json_t *documents, json_t *spec, int i,
                      const char *hostname)
{
    char path[FOLDER_SIZE + 32];
    json_t *mounts = yaml_at(spec, BOX "volumeMounts"), *volumes = yaml_at(spec, POD "volumes");
    snprintf(path, sizeof path, "%s/pod-%s.sh", h->dir, h->host[i].name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "set -e\nhostname %s\nroot=%s/root\nmount -t tmpfs none $root\n"
            "for d in /*; do\n  case $d in /etc",
            hostname, h->dir);
    put_tops(file, mounts);
    fprintf(file,
            ") continue ;; esac\n"
            "  if [ -L $d ]; then cp -a $d $root$d\n"
            "  elif [ -d $d ]; then mkdir $root$d && mount --rbind $d $root$d; fi\ndone\n"
            "cp -a /etc $root/etc && mkdir $root/program && cp '%s/frostline' $root/program/\n"
            "rm -f $root/etc/hosts && touch $root/etc/hosts\n"
            "mount --bind %s/names $root/etc/hosts\n",
            FL_BINARY_DIR, h->dir);
    for (size_t k = 0; k < json_array_size(volumes); k++) {
        write_volume(h, documents, json_array_get(volumes, k), i);
    }
    for (size_t k = 0; k < json_array_size(mounts); k++) {
        put_mount(file, h, spec, json_array_get(mounts, k), i);
    }
    fprintf(file,
            "exec chroot $root env -i PATH=/program:/usr/bin:/bin HOME=/tmp "
            "JOB_COMPLETION_INDEX=%d sh -c 'cd \"$0\" && exec \"$@\"'",
            i);
    put_quoted(file, yaml_text(spec, BOX "workingDir"));
    put_list(file, yaml_at(spec, BOX "command"));
    put_list(file, yaml_at(spec, BOX "args"));
    assert_int_equal(fclose(file), 0);
}

/* ---- pods ---- */

static pid_t start_pod(const net_hosts *h, int i)
{
    char command[FOLDER_SIZE * 2 + 256];
    snprintf(command, sizeof command,
             "exec ip netns exec %s unshare -u -m sh %s/pod-%s.sh >> %s/%s.log 2>&1 < /dev/null",
             h->host[i].space, h->dir, h->host[i].name, h->dir, i == 0 ? "head" : h->host[i].name);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

static json_t *read_manifest(net_hosts *h, const char *kind, const char *more)
{
    assert_true(net_hosts_shell(
        "cd %s && mkdir root && "
        "'%s/frostline' manifest '%s/configs/quickstart.yaml' --name one --hosts 3 --kind %s %s "
        "--set model.blocks=2 --set model.dim=16 --set train.batch=16 --set train.evaluate=false "
        "--set freeze.policy=none --set pipe.tune=false --set train.warmup=0 "
        "--set train.decay=constant --set devices.count=auto --set fault.detect=20s "
        "> manifest.yaml && cat manifest.yaml",
        h->dir, FL_BINARY_DIR, FL_SOURCE_DIR, kind, more));
    return yaml_documents(net_hosts_said());
}

static void write_name(const net_hosts *h, int i, const char *hostname)
{
    char line[128];
    snprintf(line, sizeof line, "%s %s.one\n", h->host[i].address, hostname);
    write_file(h->dir, "names", 0644, line);
}

/* It stays for the one who waits for its exit code. */
static bool has_ended(pid_t pid)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

/* The volume that is at the working directory. */
static const char *volume_of_work(json_t *spec)
{
    const char *work = yaml_text(spec, BOX "workingDir");
    json_t *mounts = yaml_at(spec, BOX "volumeMounts"), *mount;
    size_t k;
    json_array_foreach(mounts, k, mount)
    {
        if (strcmp(yaml_text(mount, "mountPath"), work) == 0) {
            return yaml_text(mount, "name");
        }
    }
    fail_msg("no volume is at %s", work);
    return "";
}

static void write_probe(const net_hosts *h, json_t *spec)
{
    char path[FOLDER_SIZE + 32];
    snprintf(path, sizeof path, "%s/probe.sh", h->dir);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    put_list(file, yaml_at(spec, BOX "livenessProbe.exec.command"));
    fclose(file);
}

/* The probe of the head, which the run answers once it trains. */
static bool probe(const net_hosts *h, json_t *spec)
{
    write_probe(h, spec);
    return net_hosts_shell("cd %s/%s-a && PATH='%s':$PATH JOB_COMPLETION_INDEX=0 sh ../probe.sh",
                           h->dir, volume_of_work(spec), FL_BINARY_DIR);
}

/* That of an agent, which is process 1 of its pod. */
static bool probe_agent(const net_hosts *h, json_t *spec, pid_t agent)
{
    write_probe(h, spec);
    return net_hosts_shell("cd %s && JOB_COMPLETION_INDEX=1 unshare -m sh -c 'mount --bind "
                           "/proc/%d /proc/1 && exec sh ./probe.sh'",
                           h->dir, (int)agent);
}

/* Would catch: a probe of an agent that passes whatever the agent does, and one that ends an agent
 * which waits for the head. */
static void try_agent_probe(const net_hosts *h, json_t *spec)
{
    assert_true(probe_agent(h, spec, h->host[1].agent));
    kill(h->host[1].agent, SIGSTOP);
    NET_AWAIT(!probe_agent(h, spec, h->host[1].agent));
    kill(h->host[1].agent, SIGCONT);
    NET_AWAIT(probe_agent(h, spec, h->host[1].agent));
}

/* hostnames [PODS] of the pods. The last one comes up late. */
static void run_pods(net_hosts *h, json_t *documents, json_t *spec, const char *const *hostnames)
{
    bool answered = false;
    for (int i = 0; i < PODS; i++) {
        write_pod(h, documents, spec, i, hostnames[i]);
    }
    write_file(h->dir, "names", 0644, "127.0.0.1 localhost\n");
    h->host[1].agent = start_pod(h, 1);
    NET_AWAIT(net_hosts_log_has(h, "b.log", "waits for the address of"));
    try_agent_probe(h, spec);
    write_name(h, 0, hostnames[0]);
    write_name(h, 1, hostnames[1]);
    h->head = start_pod(h, 0);
    NET_AWAIT(net_hosts_log_has(h, "head.log", hostnames[2]) || has_ended(h->head));
    write_name(h, 2, hostnames[2]);
    h->host[2].agent = start_pod(h, 2);
    NET_AWAIT((answered = probe(h, spec)) || has_ended(h->head));
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED || has_ended(h->head));
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, 5, 5);
    assert_true(answered);
    net_hosts_run_alone(h, ALONE);
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
}

/* DIR/run is the run directory, which the head's arguments name below its working directory. */
static void link_run(const net_hosts *h, json_t *spec)
{
    const char *dir = yaml_word_after(yaml_at(spec, BOX "args"), "--run-dir");
    assert_true(dir[0] != '/');
    assert_true(net_hosts_shell("ln -s '%s-a/%s' %s/run", volume_of_work(spec), dir, h->dir));
}

static void test_manifest__job_set_trains(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    json_t *documents = read_manifest(h, "jobset", APART ENDLESS),
           *set = yaml_of_kind(documents, "JobSet");
    json_t *job = yaml_at(set, "spec.replicatedJobs.0.template.spec");
    link_run(h, job);
    run_pods(h, documents, job,
             (const char *[]){"one-hosts-0-0", "one-hosts-0-1", "one-hosts-0-2"});
    json_decref(documents);
}

/* With the volume that all pods mount, where the run directory is. */
static void test_manifest__job_trains_on_a_shared_volume(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    json_t *documents = read_manifest(h, "job", CLAIM ENDLESS);
    json_t *job = yaml_at(yaml_of_kind(documents, "Job"), "spec");
    link_run(h, job);
    run_pods(h, documents, job, (const char *[]){"one-0", "one-1", "one-2"});
    json_decref(documents);
}

/* An evicted pod comes back under its name, on another node. */
static void move_pod(net_hosts *h, int i, const char *hostname, const char *address)
{
    net_host *host = &h->host[i];
    assert_true(net_hosts_shell("ip -n %s addr del %s/24 dev fl0 && ip -n %s addr add %s/24 dev "
                                "fl0 && sed -i '/%s/d' %s/names.new && cat %s/names.new >%s/names",
                                host->space, host->address, host->space, address, hostname, h->dir,
                                h->dir, h->dir));
    snprintf(host->address, sizeof host->address, "%s", address);
    write_name(h, i, hostname);
}

static bool ask_head(const net_hosts *h, const char *words)
{
    return net_hosts_shell("'%s/frostline' ctl %s/run %s", FL_BINARY_DIR, h->dir, words);
}

/* Would catch: a pod that is evicted and made again, and is refused, waits for ever, or whose
 * workers listen at the address of the one before; and agents that end with 0 when the head is
 * evicted, so that Kubernetes would not make their pods again. */
static void test_manifest__an_evicted_pod_comes_back(void **state)
{
    static const char *const hostnames[PODS] = {"one-0", "one-1", "one-2"};
    net_hosts *h = *state;
    NET_NEED(h);
    json_t *documents = read_manifest(
        h, "job",
        APART ENDLESS "--grace 100 --set elastic.enabled=false --set pipe.k=1 --set autodp.r=3 "
                      "--set pipe.m=1");
    json_t *job = yaml_at(yaml_of_kind(documents, "Job"), "spec");
    link_run(h, job);
    write_file(h->dir, "names", 0644, "127.0.0.1 localhost\n");
    for (int i = 0; i < PODS; i++) {
        write_pod(h, documents, job, i, hostnames[i]);
        write_name(h, i, hostnames[i]);
    }
    assert_true(net_hosts_shell("cp %s/names %s/names.new", h->dir, h->dir));
    h->head = start_pod(h, 0);
    for (int i = 1; i < PODS; i++) {
        h->host[i].agent = start_pod(h, i);
    }
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED || has_ended(h->head));
    kill(h->host[2].agent, SIGTERM);
    assert_int_equal(net_hosts_await_exit(&h->host[2].agent), 6);
    move_pod(h, 2, hostnames[2], "10.213.8.33");
    h->host[2].agent = start_pod(h, 2);
    NET_AWAIT(net_hosts_n_events(h, "transition.done", "\"r\": 3") == 1 || has_ended(h->head) ||
              has_ended(h->host[2].agent));
    assert_true(ask_head(h, "status"));
    assert_non_null(strstr(net_hosts_said(), "10.213.8.33"));
    assert_int_equal(net_hosts_n_events(h, "host.joined", "10.213.8.33"), 1);
    kill(h->head, SIGTERM); /* its pod is evicted: all pods are made again */
    net_hosts_expect_codes(h, 5, 5);
    net_hosts_run_alone(h, ALONE);
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
    json_decref(documents);
}

/* Each ends with exit code 2 and this text, and writes nothing to standard output. */
static void test_manifest__refuses(void **state)
{
    net_hosts *h = *state;
    static const char *const cases[][2] = {
        {"manifest JOB", "--hosts: found nothing"},
        {"manifest JOB --hosts 1", "--hosts: found '1', allowed: 2 to 128"},
        {"manifest JOB --hosts 2", "run.shared: found true, but without --claim"},
        {"manifest JOB --hosts 3 --claim c", "devices.count: found 2, but 3 hosts of 1 have 3"},
        {"manifest JOB --hosts 2 --claim c --kind pod", "--kind: found 'pod', allowed: jobset"},
        {"manifest JOB --hosts 2 --claim c --name A", "--name: found 'A', allowed: 1 to 24"},
        {"manifest JOB --hosts 2 --claim 'a b'", "--claim: found 'a b', allowed"},
        {"manifest JOB --hosts 2 --claim c --grace x", "--grace: found 'x', allowed"},
        {"manifest JOB --hosts 2 --claim c --set name=42", "allowed: --name NAME"},
        {"run JOB --key KEY", "--key: the run has one host"},
        {"run JOB --hosts HOSTS --ssh --key KEY", "--key: --ssh is given, too"},
        {"run JOB --hosts HOSTS --listen tcp://127.0.0.1:5570 --set devices.count=auto --key KEY",
         "no keys found; allowed: the file head.key"},
        {"agent --join tcp://127.0.0.1:1 --key KEY --wait 0", "--wait: found '0', allowed: 1 to"},
    };
    write_file(
        h->dir, "half.key", 0600,
        "hIm.]<E[>7{g)*.k>Hv/J+^zsIz)?t9HZF{gC^2S\n^Q=WVx>eU$*gf{Lr=0CBO>[EPGW<Be+L6Qg-kEF:\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool refused = net_hosts_shell(
            "cd %s && J='%s/configs/quickstart.yaml' && "
            "c=$(echo \"%s\" | sed \"s|JOB|$J|; s|KEY|half.key|; s|HOSTS|hosts.yaml|\") && "
            "eval \"'%s/frostline' $c\" >out 2>err; [ $? = 2 ] && [ ! -s out ] && "
            "grep -qF -- \"%s\" err || { cat err; false; }",
            h->dir, FL_SOURCE_DIR, cases[i][0], FL_BINARY_DIR, cases[i][1]);
        if (!refused) {
            fail_msg("%s: %s", cases[i][0], net_hosts_said());
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_manifest__refuses, make_three, net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_manifest__job_set_trains, make_three,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_manifest__job_trains_on_a_shared_volume, make_three,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_manifest__an_evicted_pod_comes_back, make_three,
                                        net_hosts_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
