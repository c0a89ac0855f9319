/* A plugin of version 1 of the C API, with the declarations of then: it exports a function. It must
 * not be called. */
#include <stdlib.h>

typedef int fl_status;
typedef struct fl_job fl_job;
typedef struct fl_model fl_model;
typedef struct fl_dataset {
    const void *ops;
    void *self;
} fl_dataset;

__attribute__((visibility("default"))) fl_status
frostline_plugin(const fl_job *job, fl_model **model, fl_dataset *dataset);

fl_status frostline_plugin(const fl_job *job, fl_model **model, fl_dataset *dataset)
{
    (void)job;
    (void)model;
    (void)dataset;
    abort();
}
