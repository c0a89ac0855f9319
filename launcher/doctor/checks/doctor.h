/* What a run needs of a host, checked one thing after the other. Each function adds its findings;
 * none fails. Threads: the process must have no others, since some checks fork. */
#ifndef FL_LAUNCHER_DOCTOR_CHECKS_DOCTOR_H
#define FL_LAUNCHER_DOCTOR_CHECKS_DOCTOR_H

#include "autodp/nccl/trial.h"
#include "control/state/hosts/host_facts.h"
#include "device/machine/host_limits.h"
#include "launcher/cli/hosts/planned_hosts.h"
#include "launcher/doctor/checks/findings.h"
#include "launcher/run/plan/preparation.h"

#include <frostline/job.h>
#include <frostline/model.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* Versions of the program and its libraries; whether ZeroMQ can encrypt. */
void fl_doctor_look_at_program(fl_findings *findings);

/* Processors, memory and limits. has_job: as for fl_doctor_judge_machine. */
void fl_doctor_look_at_machine(bool has_job, fl_findings *findings);

/* The clocks; takes a few milliseconds. */
void fl_doctor_look_at_clock(fl_findings *findings);

/* The check of what workers of one host speak over. */
#define FL_DOCTOR_SOCKETS "sockets"

/* Sockets of loopback addresses; whether processes can share memory. */
void fl_doctor_look_at_links(fl_findings *findings);

/* Folders that runs write to, and how much fits there.
 * runs  where run directories are made; NULL: the job does not tell */
void fl_doctor_look_at_folders(const char *runs, fl_findings *findings);

/* In place of what was found of another folder: the job does not tell where runs are made. */
void fl_doctor_say_unknown_runs(fl_findings *findings);

/* The folder itself, or the nearest one above it that exists: there a run makes it. A symbolic link
 * exists, wherever it leads. */
void fl_doctor_find_existing(const char *path, char found[PATH_MAX]);

/* The working directory, in which relative paths of a job begin. Returns `here`. */
const char *fl_doctor_here(char here[PATH_MAX]);

/* What is wrong with a path that fl_doctor_find_existing found, to follow "PATH: ". error: the
 * errno of what was tried there. Returns `text`. */
enum { FL_DOCTOR_FAULT_TEXT = 400 };
const char *fl_doctor_fault(const char *found, int error, char text[FL_DOCTOR_FAULT_TEXT]);

/* The path from the root, by the working directory. */
void fl_doctor_absolute(const char *path, char full[PATH_MAX]);

/* GPUs: the plugin, the driver, the devices, NCCL. The job may compute on them, and need NCCL.
 * nccl  out: what a process that loaded it found; unchanged where there is no GPU */
void fl_doctor_look_at_gpus(const fl_job *job, fl_nccl_trial *nccl, fl_findings *findings);

/* Whether this host has what the job needs: every check that frostline validate makes, and the
 * memory of this host's workers against what is free. The model and the data set are the job's.
 * planned: the hosts of the run, this one the first; NULL: this one alone. nccl: as
 * fl_doctor_look_at_gpus left it, cleared before that.
 * facts  out: what other hosts must have, too; unchanged after an error */
void fl_doctor_look_at_job(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                           const fl_planned_hosts *planned, const fl_nccl_trial *nccl,
                           fl_host_facts *facts, fl_findings *findings);

/* The address of this host, of several, where a run tries it before a worker starts
 * (launcher/run/checks/loopback.h). p: after fl_preparation_check. address: as the file of hosts
 * has it; nothing is tried if it is not of this host. A finding only where it fails. */
void fl_doctor_look_at_loopback(const fl_preparation *p, const char *address,
                                fl_findings *findings);

/* ---- judgements: pure ---- */

/* Limits as getrlimit gives them; UINT64_MAX: none. */
typedef struct fl_doctor_limits {
    uint64_t files, files_most; /* the soft limit and the hard one */
    uint64_t locked_bytes;
    uint64_t processes;
    uint64_t n_threads; /* of all users, now: this one has no more; 0: not known */
    bool is_root;       /* the number of processes does not limit this user */
} fl_doctor_limits;

void fl_doctor_judge_limits(const fl_doctor_limits *limits, fl_findings *findings);

typedef struct fl_doctor_clock {
    int64_t n_back;       /* how often the monotonic clock went back */
    double read_ns;       /* the time that one reading takes */
    int64_t elapsed_us;   /* on the monotonic clock, while it was watched, */
    int64_t real_us;      /* and on the clock of the day */
    int64_t now_s;        /* seconds since 1970, on the clock of the day */
    bool is_synchronized; /* as the kernel says */
    char source[64];      /* "tsc"; "": not known */
} fl_doctor_clock;

void fl_doctor_judge_clock(const fl_doctor_clock *clock, fl_findings *findings);

void fl_doctor_judge_shm(int64_t size_bytes, int64_t free_bytes, fl_findings *findings);

/* has_job: fl_doctor_look_at_job compares the processors with the workers of the job; otherwise,
 * fewer than the machine has are a warning. */
void fl_doctor_judge_machine(const fl_host_limits *machine, int n_online, bool has_job,
                             fl_findings *findings);

/* What is wrong with the sockets of loopback addresses is one warning for all of them, and an error
 * if the job has two workers or more on the host. host: its name; NULL: this one */
void fl_doctor_compare_sockets(const char *host, int n_workers, fl_findings *findings);

/* memory_bytes: of all workers together; available_bytes: 0: not known */
void fl_doctor_judge_memory(int64_t memory_bytes, int n_workers, int64_t available_bytes,
                            fl_findings *findings);

#endif
