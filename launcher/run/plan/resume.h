/* An interrupted run that continues:
 *
 *     the run directory ①  not in use, and locked; its job              fl_resume_open
 *     the job ②            which fields changed, and whether they may   fl_resume_check_job
 *     the checkpoint ③     the newest that is whole and fits            fl_resume_choose
 *     the plan ④           the checkpoint's, or another with its F      fl_resume_keeps_plan, ...
 *     the new job ⑤        beside job.yaml, if it has changed            fl_resume_begin
 *     what is newer ⑥      checkpoints, hashes                          fl_resume_drop_newer
 *     workers are ready ⑦  job.yaml, and not the trained model          fl_resume_take_over
 *
 * Nothing is changed on the disk before ⑥, shortly before the workers are started. The controller
 * continues the other files with ⑦, so that a start that fails leaves them as they were. A run that
 * goes back before it has any state begins again in its directory: it has no ③ and no ④. */
#ifndef FL_LAUNCHER_RUN_PLAN_RESUME_H
#define FL_LAUNCHER_RUN_PLAN_RESUME_H

#include "control/checkpoint/manifest/manifest.h"
#include "control/events/resume_files.h"
#include "launcher/job/schema/schema.h"
#include "launcher/run/plan/preparation.h"
#include "launcher/run/runs/runs.h"
#include "launcher/worker/worker.h"

enum { FL_RESUME_WHY_MAX = 512 };

/* Large: keep it in memory from fl_alloc. A struct of zeros holds nothing. */
typedef struct fl_resume {
    bool is_open;
    char dir[PATH_MAX];                  /* absolute */
    int dir_fd, held_fd;                 /* job.yaml, with the lock */
    int next_fd;                         /* the file that is to replace it, locked; -1: none */
    const struct fl_kept_snapshot *kept; /* the snapshot of the run that goes back; NULL: none */
    const char *why;                     /* the loss after which it goes back; NULL: none */
    int64_t lost_at;                     /* steps that were finished at that loss */
    bool returns;                        /* it continues from that, and from no checkpoint */
    bool tidied;        /* this process has named before what stays of unfinished checkpoints */
    bool begins_again;  /* it goes back, but has neither: it starts with its first step */
    int64_t wanted;     /* steps of the checkpoint that the user names; -1: the newest */
    fl_run_state ended; /* how the run ended before */
    char job_path[PATH_MAX + 16];
    char *job_text; /* job.yaml */
    size_t job_bytes;
    fl_job before;                      /* its fields */
    const char *changed[FL_SCHEMA_MAX]; /* [n_changed] fields that have another value now */
    int n_changed;
    char checkpoints[PATH_MAX]; /* the folder of the checkpoints */
    fl_checkpoint *checkpoint;
    fl_job made_by; /* the job that wrote the checkpoint */
    char folder[PATH_MAX + FL_CHECKPOINT_NAME_MAX];
    int folder_fd;
    fl_refused_checkpoint *refused; /* [n_refused] newer ones that could not be used */
    int n_refused;
    size_t refused_capacity;
    fl_runfiles_cut cut;
    char plan_why[FL_RESUME_WHY_MAX]; /* why this plan */
    fl_worker_birth start; /* without the plan and who keeps moments, which depend on it */
    fl_resume_origin origin;
} fl_resume;

/* ①. run_dir: a directory. FL_EINVAL if it holds no run, or if another process trains or resumes
 * it; FL_EIO. Call fl_resume_close after a failure, too. */
fl_status fl_resume_open(const char *run_dir, fl_resume *r) FL_MUST_CHECK;
void fl_resume_close(fl_resume *resume);

/* The same for a run of this process that goes back, whose job.yaml it holds by held_fd: that
 * becomes resume->held_fd, also after a failure. */
fl_status fl_resume_open_held(const char *run_dir, int held_fd, fl_resume *resume) FL_MUST_CHECK;

/* Prefix this thread's message with "--resume: PATH: ", in characters that harm no terminal and end
 * no line. Returns status. */
fl_status fl_resume_within(const char *path, fl_status status) FL_MUST_CHECK;

/* The run's job with overrides [n], as fl_job_load. */
fl_status fl_resume_load_job(const fl_resume *resume, const char *const *overrides, int n,
                             fl_job *job) FL_MUST_CHECK;

/* ②. FL_EINVAL lists all fields that may not change. */
fl_status fl_resume_check_job(fl_resume *resume, const fl_job *now) FL_MUST_CHECK;

/* The same for a program's job: fields that describe a built-in model or files have no meaning, and
 * *now gets the run's. FL_EINVAL also if the run is not a program's. */
fl_status fl_resume_check_program(fl_resume *resume, fl_job *now) FL_MUST_CHECK;

/* Whether the run continues from a checkpoint or a snapshot; false at its beginning. */
bool fl_resume_has_state(const fl_preparation *p);

/* Whether the run goes back after a loss: its start has told before what is to be known of its job
 * and of this machine. */
bool fl_resume_goes_back(const fl_preparation *p);

/* ③. p: checked. Returns FL_EINVAL with every reason if no checkpoint can be used, or with a list
 * of what there is if the wanted one is missing. */
fl_status fl_resume_choose(fl_resume *resume, const fl_preparation *p) FL_MUST_CHECK;

/* ④. Whether the checkpoint's plan can run on under this job, with these devices and their memory;
 * plan_why says so, or why not. p->input is complete. */
bool fl_resume_keeps_plan(fl_resume *resume, const fl_preparation *p);

/* Set *plan to the checkpoint's (kept), or continue with *plan, which was chosen for its F. What
 * the checkpoint has by rank is changed to that plan's workers. */
void fl_resume_take_plan(fl_resume *resume, const fl_preparation *p, bool kept, fl_plan *plan);

/* ⑤. FL_EIO. */
fl_status fl_resume_begin(fl_resume *resume, const fl_preparation *p) FL_MUST_CHECK;

/* ⑥. Before a worker may write a checkpoint or a hash. FL_EIO. */
fl_status fl_resume_drop_newer(fl_resume *resume) FL_MUST_CHECK;

/* ⑦. All hosts have joined, and all workers are ready: the new job.yaml, if there is one, replaces
 * the old one, and the lock moves to it; the trained model that the run had left is removed. What
 * fails is named in a warning. */
void fl_resume_take_over(fl_resume *resume);

#endif
