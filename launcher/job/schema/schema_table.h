/* The parts of the table of fields, in their order; schema.c joins them. Choices have the order of
 * their enums in frostline/job.h and frostline/dataset.h. */
#ifndef FL_LAUNCHER_JOB_SCHEMA_SCHEMA_TABLE_H
#define FL_LAUNCHER_JOB_SCHEMA_SCHEMA_TABLE_H

#include "launcher/job/schema/schema.h"

#include <stddef.h>

#define KIB INT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define TIB (1024 * GIB)
#define SECOND INT64_C(1000)
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)

#define AT(member) offsetof(fl_job, member)
#define CHOICES(...) ((const char *const[]){__VA_ARGS__, NULL})

typedef struct fl__field_table {
    const fl_field *fields; /* [n] */
    int n;
} fl__field_table;

#define TABLE(fields)                                                                              \
    {                                                                                              \
        fields, (int)(sizeof(fields) / sizeof((fields)[0]))                                        \
    }

extern const fl__field_table fl__fields_of_model;
extern const fl__field_table fl__fields_of_train;
extern const fl__field_table fl__fields_of_plan;
extern const fl__field_table fl__fields_of_run;

#endif
