/* What of a machine a job computes on, found before any worker starts: which devices there are, and
 * which worker uses which of them. */
#ifndef FL_DEVICE_MACHINE_SURVEY_H
#define FL_DEVICE_MACHINE_SURVEY_H

#include <frostline/status.h>
#include <frostline/tensor.h>

#include <stdbool.h>

enum { FL_SURVEY_DEVICES_MAX = 64, FL_SURVEY_NAME_BYTES = 96, FL_SURVEY_TEXT_BYTES = 512 };
enum { FL_SURVEY_PROCESSORS_MAX = 1024 };

/* One device that workers can share. */
typedef struct fl_device_facts {
    char name[FL_SURVEY_NAME_BYTES]; /* "NVIDIA H100 80GB HBM3" */
    size_t memory_bytes;
    int numa; /* the NUMA node of the processors that it hangs on; -1: unknown */
} fl_device_facts;

/* Workers are dealt to the devices in turn: worker w uses device (w - first) % n. */
typedef struct fl_device_survey {
    fl_device_kind kind;
    int first; /* the first worker of this host, where a run has several hosts; otherwise 0 */
    int n; /* devices to share; 0: each worker makes its own from the processors of the machine */
    fl_device_facts device[FL_SURVEY_DEVICES_MAX];
    bool nvlink[FL_SURVEY_DEVICES_MAX][FL_SURVEY_DEVICES_MAX]; /* between two of them */
    int driver_version; /* of the newest CUDA that the driver can run: 13000 is 13.0. 0: unknown */
    /* Workers of this host that have processors of their own (device/machine/sockets.h): */
    int n_seats, seat_cores;                   /* n_seats 0: none has, or it is not known */
    int seat_socket[FL_SURVEY_PROCESSORS_MAX]; /* [n_seats] the socket of the processors of each */
    int seat_cpu[FL_SURVEY_PROCESSORS_MAX];    /* [n_seats * seat_cores] those of worker 0 first */
} fl_device_survey;

/* What a job asks for. */
typedef struct fl_device_demand {
    fl_device_kind kind;
    int n_workers;           /* 0: as many as there are devices */
    const char *count_field; /* the job's field that says so; NULL: "devices.count" */
    size_t budget_bytes;     /* of one worker */
    bool apart;              /* no two workers share a device */
} fl_device_demand;

/* Whether this machine and its environment have what the job asks for. This process does not touch
 * a device: a child process looks, since workers that are forked from a process that has used a GPU
 * cannot use it. Returns FL_EINVAL or FL_ENOTSUP with one line that names what is missing. */
fl_status fl_device_survey_make(const fl_device_demand *demand,
                                fl_device_survey *out) FL_MUST_CHECK;

/* The number of the device of a worker of this host; 0 where there are none to share. */
int fl_device_survey_number(const fl_device_survey *survey, int rank);

/* The devices in words: "2 x NVIDIA H100 80GB HBM3", or the processor and the instruction set of
 * its kernels: "AMD EPYC 9B14, avx512". Returns text. */
const char *fl_device_survey_text(const fl_device_survey *survey, char text[FL_SURVEY_TEXT_BYTES]);

/* Which workers have them: "4 workers on 2 x NVIDIA H100 80GB HBM3, worker w on GPU w % 2". ""
 * where there are none to share. Returns text. */
const char *fl_device_survey_line(const fl_device_survey *survey, int n_workers,
                                  char text[FL_SURVEY_TEXT_BYTES]);

#endif
