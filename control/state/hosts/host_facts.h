/* What all hosts of a run must have alike. The head tells its own to each host that joins, which
 * compares before a worker starts. */
#ifndef FL_CONTROL_STATE_HOSTS_HOST_FACTS_H
#define FL_CONTROL_STATE_HOSTS_HOST_FACTS_H

#include <stdint.h>

enum { FL_HOST_VERSION_MAX = 31 };

typedef struct fl_host_facts {
    char version[FL_HOST_VERSION_MAX + 1]; /* of the program */
    uint64_t model;                        /* fingerprint of the layers and their parameters */
    uint64_t data;                         /* the same of the data set; 0: it has none */
    int64_t n_train, n_test;               /* its samples */
    uint64_t weights; /* the same of the weights to start from; 0: from no file */
    uint64_t plugin;  /* hash of the plugin's file; 0: the model has none */
} fl_host_facts;

#endif
