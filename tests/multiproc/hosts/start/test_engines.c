/* Runs that the engines of Debian start, as users have them: Slurm, the mpirun of Open MPI and that
 * of MPICH, and ssh to a real sshd. Would catch: variables that an engine does not set, tasks that
 * do not find each other, a requeue that trains from the start, a lost node that ends the run, and
 * exit codes that end what goes on. Hosts are network name spaces, each with its own slurmd, daemon
 * of mpirun, or sshd; all services are started and ended here. A test without its packages, or
 * without the right to make name spaces, is skipped by name. */
#include "support/hosts/net_run.h"
#include "support/hosts/site.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A run of ENDLESS steps lasts until the test stops it, however fast its steps are: what the test
 * does to it never comes too late. */
enum { COMPARED = 12, STEPS = 20, ENDLESS = 900000, STOPPED = 130 };

#define LONG "--set train.batch=64 --set train.epochs=1000 "
#define FEW "--set fault.detect=2s --set elastic.enabled=false " LONG
#define REPLICAS FEW "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1 "

/* It trains: at least one more step. */
static void await_step(const site *s)
{
    int before = net_hosts_n_steps(&s->h);
    AWAIT(s, net_hosts_n_steps(&s->h) > before);
}

static void stop_run(const site *s)
{
    if (!net_hosts_shell("'%s/frostline' ctl %s/run stop 2>&1", FL_BINARY_DIR, s->h.dir)) {
        fail_msg("%s", net_hosts_said());
    }
}

#define NEED_PROGRAMS(names)                                                                       \
    if (!net_hosts_shell("for p in " names "; do command -v $p || exit 1; done")) {                \
        print_message("skipped: one of " names " is missing; ./setup --check-tools\n");            \
        skip();                                                                                    \
    }

/* ---- Slurm ---- */

static void write_slurm(const site *s)
{
    const char *dir = s->h.dir;
    assert_true(net_hosts_shell("hostname -s"));
    char name[128];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(net_hosts_said(), "\n"), net_hosts_said());
    site_write(s, "slurm.conf",
               "ClusterName=test\nSlurmctldHost=%s(%s)\nSlurmUser=root\nSlurmdUser=root\n"
               "AuthType=auth/munge\nAuthInfo=socket=%s/munge/sock,cred_expire=5\n"
               "CredType=cred/munge\nStateSaveLocation=%s/state\nSlurmdSpoolDir=%s/%%n\n"
               "SlurmctldPidFile=%s/ctl.pid\nSlurmdPidFile=%s/%%n.pid\nMailProg=/bin/true\n"
               "ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n"
               "SelectType=select/"
               "cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\nSlurmdTimeout=4\n"
               "SlurmdParameters=config_overrides\nJobRequeue=1\n"
               "SchedulerParameters=batch_sched_delay=0,sched_interval=1\n"
               "NodeName=a NodeAddr=%s CPUs=2\nNodeName=b NodeAddr=%s CPUs=2\n"
               "NodeName=c NodeAddr=%s CPUs=2\nPartitionName=all Nodes=a,b,c Default=YES\n",
               name, s->h.host[0].address, dir, dir, dir, dir, dir, s->h.host[0].address,
               s->h.host[1].address, s->h.host[2].address);
    site_write(s, "cgroup.conf", "CgroupPlugin=autodetect\n");
}

static void start_slurm(site *s)
{
    const char *dir = s->h.dir;
    char conf[FOLDER_SIZE + 32];
    write_slurm(s);
    s->has_slurm = true;
    snprintf(conf, sizeof conf, "%s/slurm.conf", dir);
    setenv("SLURM_CONF", conf, 1);
    assert_true(net_hosts_shell("cd %s && mkdir -m 700 munge state a b c && "
                                "dd if=/dev/urandom of=munge/key bs=1024 count=1 && "
                                "chmod 400 munge/key",
                                dir));
    site_start(s, -1,
               "munged -F --force --key-file=%s/munge/key --socket=%s/munge/sock "
               "--pid-file=%s/munge/pid --log-file=%s/munge/log --seed-file=%s/munge/seed",
               dir, dir, dir, dir, dir);
    AWAIT(s, net_hosts_shell("test -S %s/munge/sock", dir));
    site_start(s, 0, "slurmctld -D -i");
    for (int i = 0; i < 3; i++) {
        site_start(s, i, "slurmd -D -N %s", s->h.host[i].name);
    }
    AWAIT(s, site_on_host(s, 0, "sinfo -h -t idle -o %%D | grep -qx 3"));
}

/* The script of docs/hosts.md, with a file of its exit codes. no_kill: the job outlives a node that
 * Slurm finds down. */
static void submit(const site *s, bool no_kill, int n_steps)
{
    site_write(s, "job.sh",
               "#!/bin/sh\n#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=1 --requeue "
               "%s --open-mode=append --output=%s/job.log\n"
               "srun %s --kill-on-bad-exit=0 '%s/frostline' run " NET_JOB REPLICAS
               "--set train.max_steps=%d --set 'checkpoint.every=50 steps' --run-dir %s/run "
               "--continue\necho code $? >> %s/codes\n",
               no_kill ? "--no-kill" : "", s->h.dir, no_kill ? "--no-kill" : "", FL_BINARY_DIR,
               n_steps, s->h.dir, s->h.dir);
    assert_true(site_on_host(s, 0, "sbatch %s/job.sh", s->h.dir));
}

static bool is_over(const site *s)
{
    return site_on_host(s, 0, "squeue -h -o %%T > %s/queue && test ! -s %s/queue", s->h.dir,
                        s->h.dir);
}

/* Whether the last script that ended has written this code of srun. */
static bool srun_ended(const site *s, int code)
{
    return net_hosts_shell("tail -n 1 %s/codes | grep -qx 'code %d'", s->h.dir, code);
}

static bool are_idle(const site *s, const char *nodes)
{
    return site_on_host(s, 0, "sinfo -h -N -n %s -t idle -o %%N | sort -u | wc -l | grep -qx 2",
                        nodes);
}

/* Slurm finds a node down, of a job without --no-kill: it ends the job and queues it again by
 * itself, and the run continues from its newest checkpoint. */
static void lose_node(site *s)
{
    net_hosts *h = &s->h;
    assert_true(net_hosts_shell("rm -r %s/run", h->dir));
    submit(s, false, ENDLESS);
    AWAIT(s, net_hosts_shell("grep -q checkpoint.written %s/run/events.jsonl", h->dir));
    assert_true(site_on_host(s, 0, "scontrol update NodeName=b State=DOWN Reason=test"));
    AWAIT(s, site_on_host(s, 0, "squeue -h -o %%T | grep -qx PENDING"));
    (void)site_on_host(s, 0,
                       "scontrol update NodeName=b State=RESUME"); /* or it is back by itself */
    AWAIT(s, net_hosts_n_events(h, "run.resumed", "") == 1);
    await_step(s);
    stop_run(s);
    AWAIT(s, is_over(s));
    assert_true(srun_ended(s, STOPPED));
    assert_int_equal(net_hosts_n_events(h, "run.resumed", ""), 1);
}

static void test_engines__slurm_starts_requeues_and_goes_on_without_a_node(void **state)
{
    site *s = *state;
    net_hosts *h = &s->h;
    char more[128];
    NET_NEED(h);
    NEED_PROGRAMS("munged slurmctld slurmd sbatch srun nsenter taskset");
    start_slurm(s);
    submit(s, true, ENDLESS);
    AWAIT(s, net_hosts_n_steps(h) > 2 * COMPARED);
    assert_true(net_hosts_log_has(h, "job.log", "Slurm: task 1 of 2, host b"));

    /* A node is drained, and the job is requeued: SIGTERM for all, a checkpoint, other nodes. */
    assert_true(site_on_host(s, 0, "scontrol update NodeName=b State=DRAIN Reason=test"));
    assert_true(site_on_host(s, 0, "scontrol requeue 1"));
    AWAIT(s, net_hosts_n_events(h, "run.resumed", "") == 1);
    AWAIT(s, net_hosts_log_has(h, "job.log", "Slurm: task 1 of 2, host c"));
    AWAIT(s, net_hosts_n_events(h, "host.joined", "\"host\": \"c\"") > 0);
    await_step(s);

    /* A node fails: its slurmd, and all that runs there. Its slurmstepd tells Slurm so at once,
     * where a node without power is noticed after SlurmdTimeout. */
    assert_true(net_hosts_shell("for p in $(ip netns pids %s); do case $(cat /proc/$p/comm) in "
                                "slurmd | frostline) kill -9 $p ;; esac; done",
                                h->host[2].space));
    AWAIT(s, net_hosts_n_events(h, "host.lost", "\"host\": \"c\"") == 1);
    await_step(s);
    stop_run(s);
    AWAIT(s, is_over(s));
    assert_int_equal(net_hosts_n_events(h, "run.resumed", ""), 1);
    assert_true(srun_ended(s, 128 + SIGKILL)); /* of the task of the node */

    /* The run continues to its end. A script that asks for a requeue after each code finds that. */
    int n_steps = net_hosts_n_steps(h) + STEPS;
    assert_true(site_on_host(s, 0, "scontrol update NodeName=b State=RESUME")); /* c stays down */
    AWAIT(s, are_idle(s, "a,b"));
    for (int i = 0; i < 2; i++) {
        submit(s, true, n_steps);
        AWAIT(s, is_over(s));
        if (!srun_ended(s, 0)) {
            site_show(s);
            fail_msg("a run that continues to its end has failed");
        }
        assert_int_equal(net_hosts_n_steps(h), n_steps);
        assert_int_equal(net_hosts_n_events(h, "run.resumed", ""), 2);
    }
    snprintf(more, sizeof more, LONG "--set train.max_steps=%d", COMPARED);
    net_hosts_run_alone(h, more);
    net_hosts_check(h, n_steps, COMPARED);
    lose_node(s);
    assert_true(net_hosts_shell("test -z \"$(ls -d %s/.start-1-*-1 2>/dev/null)\"", h->dir));
}

/* ---- a notice for one task ---- */

/* SIGTERM for the agent on a host, which this daemon of an engine has started, drains the host: its
 * processes end, and the others train on. */
static void drain_host(site *s, int i, const char *daemon)
{
    const net_hosts *h = &s->h;
    assert_true(
        net_hosts_shell("for p in $(ip netns pids %s); do parent=$(awk '{print $4}' "
                        "/proc/$p/stat); if [ $(cat /proc/$p/comm) = frostline ] && [ $(cat "
                        "/proc/$parent/comm) = %s ]; then kill -TERM $p; fi; done",
                        h->host[i].space, daemon));
    AWAIT(s, net_hosts_n_events(h, "host.drained", "") == 1);
    AWAIT(s, !net_hosts_shell("ip netns pids %s | xargs -r ps -o comm= -p | grep -q frostline",
                              h->host[i].space));
    await_step(s);
}

/* Nothing was lost, and nothing is left of how the tasks found each other. */
static void check_drained(const site *s)
{
    char arguments[128];
    const net_hosts *h = &s->h;
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 0);
    snprintf(arguments, sizeof arguments, LONG "--set train.max_steps=%d", COMPARED);
    net_hosts_run_alone(h, arguments);
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
    assert_false(net_hosts_shell("ls -d %s/.start-*", h->dir));
}

/* Slurm sends SIGTERM to the tasks of a node that it takes away: here, to that of one node of two,
 * whose job goes on. */
static void test_engines__slurm_goes_on_without_a_drained_node(void **state)
{
    site *s = *state;
    net_hosts *h = &s->h;
    NET_NEED(h);
    NEED_PROGRAMS("munged slurmctld slurmd sbatch srun nsenter taskset");
    start_slurm(s);
    submit(s, false, ENDLESS);
    AWAIT(s, net_hosts_n_steps(h) > 2 * COMPARED);
    drain_host(s, 1, "slurmstepd");
    assert_int_equal(net_hosts_n_events(h, "host.drained", "\"host\": \"b\""), 1);
    stop_run(s);
    AWAIT(s, is_over(s));
    if (!srun_ended(s, STOPPED)) {
        site_show(s);
        fail_msg("srun has failed");
    }
    check_drained(s);
}

/* ---- mpirun ---- */

/* An mpirun on host a, whose daemons are started on two hosts, with a host name each, by what
 * stands for ssh here; a notice for an agent, which the daemon has started, drains its host. mpirun
 * with all options, as it starts a command name     in the log; daemon: of its process */
static void drain_under_mpirun(site *s, const char *mpirun, const char *name, const char *daemon)
{
    net_hosts *h = &s->h;
    site_start(s, 0,
               "sh -c \"%s '%s/frostline' run " NET_JOB REPLICAS
               "--set devices.count=2 --set train.max_steps=%d --run-dir %s/run; echo code \\$? "
               "> %s/codes\"",
               mpirun, FL_BINARY_DIR, ENDLESS, h->dir, h->dir);
    AWAIT(s, net_hosts_n_steps(h) > 2 * COMPARED);
    assert_true(net_hosts_log_has(h, "services.log", name));
    drain_host(s, 2, daemon);
    stop_run(s);
    AWAIT(s, net_hosts_shell("test -s %s/codes", h->dir));
    if (!net_hosts_shell("grep -qx 'code %d' %s/codes", STOPPED, h->dir)) {
        site_show(s);
        fail_msg("mpirun has failed");
    }
    check_drained(s);
}

/* In place of ssh: [OPTION]... SPACE COMMAND... */
static void write_rsh(const site *s)
{
    site_write(s, "rsh",
               "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nspace=$1\nshift\n"
               "case $space in %s) cpu=%d ;; *) cpu=%d ;; esac\n"
               "exec nsenter --net=/run/netns/$space taskset -c $cpu unshare --uts sh -c "
               "\"hostname $space; $*\"\n",
               s->h.host[1].space, site_processor(1), site_processor(2));
    assert_true(net_hosts_shell("chmod 755 %s/rsh", s->h.dir));
}

static void test_engines__mpirun_goes_on_without_a_drained_host(void **state)
{
    site *s = *state;
    net_hosts *h = &s->h;
    char mpirun[NET_HOSTS_TEXT];
    NET_NEED(h);
    NEED_PROGRAMS("mpirun.openmpi orted nsenter taskset unshare");
    write_rsh(s);
    snprintf(mpirun, sizeof mpirun,
             "mpirun.openmpi --allow-run-as-root --oversubscribe --mca plm rsh --mca "
             "orte_tmpdir_base %s --mca plm_rsh_agent %s/rsh --map-by ppr:1:node -np 2 -H %s,%s",
             h->dir, h->dir, h->host[1].space, h->host[2].space);
    drain_under_mpirun(s, mpirun, "Open MPI: task 1 of 2", "orted");
}

/* Nobody names the start, as users of MPICH need not. */
static void test_engines__mpich_goes_on_without_a_drained_host(void **state)
{
    site *s = *state;
    net_hosts *h = &s->h;
    char mpiexec[NET_HOSTS_TEXT], name[128];
    NET_NEED(h);
    NEED_PROGRAMS("mpiexec.hydra hydra_pmi_proxy nsenter taskset unshare");
    write_rsh(s);
    snprintf(mpiexec, sizeof mpiexec,
             "mpiexec.hydra -launcher ssh -launcher-exec %s/rsh -localhost %s -hosts %s,%s -ppn 1 "
             "-n 2",
             h->dir, h->host[0].address, h->host[1].space, h->host[2].space);
    snprintf(name, sizeof name, "MPICH: task 1 of 2, host %s (%s)", h->host[2].space,
             h->host[2].address);
    drain_under_mpirun(s, mpiexec, name, "hydra_pmi_proxy");
}

/* ---- ssh ---- */

/* sshd on these hosts, "bc"; more: lines of its configuration. No shell reads its user's ~/.bashrc,
 * which may wait. */
static void start_sshd(site *s, const char *hosts, const char *more)
{
    const char *dir = s->h.dir;
    assert_true(net_hosts_shell("mkdir -p /run/sshd && cd %s && mkdir bin && ssh-keygen -q -t "
                                "ed25519 -N '' -f host_key && ssh-keygen -q -t ed25519 -N '' -f id "
                                "&& cp id.pub allowed",
                                dir));
    site_write(s, "ssh_config",
               "Host *\n  Port 2222\n  IdentityFile %s/id\n  IdentitiesOnly yes\n"
               "  UserKnownHostsFile %s/known\n  StrictHostKeyChecking yes\n",
               dir, dir);
    site_write(s, "bin/ssh", "#!/bin/sh\nexec /usr/bin/ssh -F %s/ssh_config \"$@\"\n", dir);
    assert_true(net_hosts_shell("chmod 755 %s/bin/ssh", dir));
    for (; *hosts != '\0'; hosts++) {
        const net_host *h = &s->h.host[*hosts - 'a'];
        char name[32], listening[64];
        snprintf(name, sizeof name, "sshd_%s", h->name);
        snprintf(listening, sizeof listening, "Server listening on %s", h->address);
        site_write(s, name,
                   "Port 2222\nListenAddress %s\nHostKey %s/host_key\nAuthorizedKeysFile "
                   "%s/allowed\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n"
                   "PidFile none\nPermitRootLogin prohibit-password\nSetEnv HOME=%s\n%s",
                   h->address, dir, dir, dir, more);
        assert_true(net_hosts_shell("cd %s && echo \"[%s]:2222 $(cat host_key.pub)\" >> known", dir,
                                    h->address));
        site_start(s, *hosts - 'a', "/usr/sbin/sshd -D -e -f %s/%s", dir, name);
        AWAIT(s, net_hosts_log_has(&s->h, "services.log", listening));
    }
}

/* ssh is that of Debian; where a user has a configuration in the home folder, this one has -F. */
static void test_engines__ssh_starts_the_agents_of_a_job(void **state)
{
    site *s = *state;
    net_hosts *h = &s->h;
    char arguments[128];
    NET_NEED(h);
    NEED_PROGRAMS("/usr/bin/ssh /usr/sbin/sshd ssh-keygen nsenter taskset");
    start_sshd(s, "b", "");
    bool good = site_on_host(
        s, 0,
        "env PATH=%s/bin:\"$PATH\" '%s/frostline' run " NET_JOB
        "--set pipe.k=2 --set autodp.r=1 --set train.max_steps=%d --run-dir %s/run "
        "--set 'hosts=[{name: a, address: %s, devices: 1}, {name: b, address: %s, "
        "devices: 1}]' > %s/head.log 2>&1",
        h->dir, FL_BINARY_DIR, STEPS, h->dir, h->host[0].address, h->host[1].address, h->dir);
    if (!good) {
        site_show(s);
        fail_msg("the run has failed");
    }
    assert_true(net_hosts_shell("test $(grep -c 'Accepted publickey' %s/services.log) = 1",
                                h->dir)); /* to be measured and for the run */
    snprintf(arguments, sizeof arguments, "--set train.max_steps=%d", STEPS);
    net_hosts_run_alone(h, arguments);
    net_hosts_check(h, STEPS, COMPARED);
}

#define NEED_SSHD NEED_PROGRAMS("/usr/bin/ssh /usr/sbin/sshd ssh-keygen nsenter taskset")

/* What sshd starts on each host: DIR/agent-ADDRESS.pid while it runs, .log, and .code at its end.
 * On host c it never begins; on host b when DIR/go is there. */
static void force_agents(const site *s, char more[NET_HOSTS_TEXT])
{
    const char *dir = s->h.dir;
    site_write(s, "force",
               "#!/bin/sh\nset -- $SSH_CONNECTION\nf=%s/agent-$3\n: > $f.pid\n"
               "[ $3 != %s ] || exec sleep 1000\n"
               "while ! test -e %s/go; do sleep 0.05; done\n"
               "sh -c \"$SSH_ORIGINAL_COMMAND\" > $f.log 2>&1\necho $? > $f.code\n",
               dir, s->h.host[2].address, dir);
    assert_true(net_hosts_shell("chmod 755 %s/force", dir));
    snprintf(more, NET_HOSTS_TEXT, "ForceCommand %s/force\n", dir);
}

/* The head on host a, with more options. */
static void start_ssh_head(site *s, const char *options)
{
    net_hosts *h = &s->h;
    site_start(s, 0,
               "sh -c \"PATH=%s/bin:\\$PATH; '%s/frostline' run " NET_JOB
               "--hosts %s/hosts.yaml --ssh --set train.max_steps=4 %s --run-dir %s/run "
               "> %s/head.log 2>&1 & echo \\$! > %s/head.pid; wait; touch %s/head.over\"",
               h->dir, FL_BINARY_DIR, h->dir, options, h->dir, h->dir, h->dir, h->dir);
}

static bool agent_said(const site *s, int host, const char *text)
{
    return net_hosts_shell("grep -q '%s' %s/agent-%s.log && grep -qx 3 %s/agent-%s.code", text,
                           s->h.dir, s->h.host[host].address, s->h.dir, s->h.host[host].address);
}

/* Would catch: an agent that waits for a minute for a head which has ended, because ssh to another
 * host has failed. Its sshd is slower than that. */
static void test_engines__a_start_that_fails_ends_the_agents_of_ssh(void **state)
{
    site *s = *state;
    net_hosts *h = &s->h;
    char more[NET_HOSTS_TEXT];
    NET_NEED(h);
    NEED_SSHD;
    force_agents(s, more);
    start_sshd(s, "b", more); /* and none on host c */
    site_write(s, "bin/ssh",
               "#!/bin/sh\ncase \"$*\" in *%s*) while ! test -e %s/agent-%s.pid; do sleep 0.05; "
               "done ;; esac\nexec /usr/bin/ssh -F %s/ssh_config \"$@\"\n",
               h->host[2].address, h->dir, h->host[1].address, h->dir);
    start_ssh_head(s, "--set run.shared=false"); /* it has the keys when the head is gone, too */
    AWAIT(s, net_hosts_log_has(h, "head.log", "Connection refused"));
    AWAIT(s, net_hosts_log_has(h, "head.log", "host c ("));
    AWAIT(s, net_hosts_shell("test -e %s/head.over", h->dir));
    assert_true(net_hosts_shell("touch %s/go", h->dir));
    AWAIT(s, agent_said(s, 1, "the ssh that started this agent has ended before"));
}

/* Would catch: agents that stay when the head is killed while it waits for another host: one that
 * was measured, and one that has joined. */
static void test_engines__a_killed_head_ends_the_agents_of_ssh(void **state)
{
    site *s = *state;
    net_hosts *h = &s->h;
    char more[NET_HOSTS_TEXT];
    NET_NEED(h);
    NEED_SSHD;
    force_agents(s, more);
    start_sshd(s, "bc", more);
    assert_true(net_hosts_shell("touch %s/go", h->dir));
    start_ssh_head(s, "--set pipe.k=1 --set autodp.r=3 --set pipe.m=1"); /* nothing is measured */
    AWAIT(s, net_hosts_log_has(h, "head.log", "has joined with worker 1"));
    assert_true(net_hosts_shell("kill -9 $(cat %s/head.pid)", h->dir));
    AWAIT(s,
          agent_said(s, 1,
                     "the head has ended, and so has the ssh\\|its controller has died\\|"
                     "the ssh that started this agent has ended before")); /* it read no welcome */
    assert_true(
        net_hosts_shell("cd %s && rm -r run agent-* && sed -i '/^links/,$d' hosts.yaml", h->dir));
    start_ssh_head(s, "");
    AWAIT(s, net_hosts_log_has(h, "head.log", "measures the links between hosts"));
    AWAIT(s, net_hosts_shell("ip netns pids %s | xargs -r ps -o comm= -p | grep -q frostline",
                             h->host[1].space));
    assert_true(net_hosts_shell("kill -9 $(cat %s/head.pid)", h->dir));
    AWAIT(s, agent_said(s, 1, "the ssh that started this agent has ended before"));
}

#define SITE(test) cmocka_unit_test_setup_teardown(test, site_make, site_remove)

/* With an argument: only the cases of this pattern, as '*mpich*'. */
int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest tests[] = {
        SITE(test_engines__slurm_starts_requeues_and_goes_on_without_a_node),
        SITE(test_engines__slurm_goes_on_without_a_drained_node),
        SITE(test_engines__mpirun_goes_on_without_a_drained_host),
        SITE(test_engines__mpich_goes_on_without_a_drained_host),
        SITE(test_engines__ssh_starts_the_agents_of_a_job),
        SITE(test_engines__a_start_that_fails_ends_the_agents_of_ssh),
        SITE(test_engines__a_killed_head_ends_the_agents_of_ssh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
