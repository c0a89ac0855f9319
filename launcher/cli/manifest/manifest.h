/* What Kubernetes gets for a run: the objects of `frostline manifest`. */
#ifndef FL_LAUNCHER_CLI_MANIFEST_MANIFEST_H
#define FL_LAUNCHER_CLI_MANIFEST_MANIFEST_H

#include <frostline/job.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* With it, a pod's host name and the run's longest address fit in 63 characters. */
enum { FL_MANIFEST_NAME_MAX = 24, FL_MANIFEST_PORT = 5570, FL_MANIFEST_KILL_S = 5 };

/* The working directory of the pods. */
#define FL_MANIFEST_WORK "/work"

/* Texts are borrowed. */
typedef struct fl_manifest {
    const char *name;    /* of all objects */
    const char *image;   /* of the containers; it has `frostline` */
    const char *claim;   /* a PersistentVolumeClaim, the pods' working directory; NULL: each has an
                            empty one of its own */
    const char *secret;  /* one that exists; NULL: a new one is written */
    const char *job;     /* the text of the job file */
    const char *run_dir; /* in the working directory; it does not begin with '-' */
    const char *const *overrides;
    int n_overrides;
    const fl_job_host *like; /* what is stated of each host: sockets, memory, speed, profile; NULL:
                                nothing */
    bool plain;              /* an Indexed Job, not a JobSet */
    int n_hosts, n_devices, n_gpus;      /* n_gpus: of a pod; 0: its devices are processors */
    int64_t cpus, memory_bytes, grace_s; /* of a pod; seconds between SIGTERM and SIGKILL less
                                            FL_MANIFEST_KILL_S */
} fl_manifest;

/* The name of the host in the run, which is the pod's host name; 0: the head. */
void fl_manifest_host(const fl_manifest *m, int i, char *text, size_t size_bytes);

/* The hosts of the run, in place of those of the job. */
void fl_manifest_set_hosts(const fl_manifest *m, fl_job *job);

/* Write all objects. FL_EIO; FL_ENOTSUP without CURVE. */
fl_status fl_manifest_write(const fl_manifest *m, FILE *stream) FL_MUST_CHECK;

#endif
