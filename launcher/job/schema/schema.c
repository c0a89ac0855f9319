#include "launcher/job/schema/schema.h"

#include "launcher/job/schema/schema_table.h"

#include <assert.h>

static const fl_section sections[] = {
    {"model", "What is trained."},
    {"data", "What it is trained on."},
    {"train", "How it is trained."},
    {"devices", "What the run may use: each device is one worker process."},
    {"freeze", "When lower blocks stop training; docs/freezing.md describes each policy."},
    {"cache", "The cache of frozen blocks' outputs; docs/cache.md."},
    {"pipe", "How the model is cut into stages, and how a step runs through them."},
    {"autodp", "How pipelines are replicated."},
    {"elastic", "How the plan changes while the run goes on."},
    {"fault", "When a worker counts as lost."},
    {"checkpoint", "When a run saves all that it needs to continue; docs/checkpoints.md."},
    {"trace", "Which steps are traced; docs/traces.md explains how to read a trace."},
    {"control", "Access to the run over the network; docs/control.md."},
    {"run", "Where a run writes its files."},
};

static const fl__field_table *const tables[] = {&fl__fields_of_model, &fl__fields_of_train,
                                                &fl__fields_of_plan, &fl__fields_of_run};

enum {
    N_SECTIONS = sizeof sections / sizeof sections[0],
    N_TABLES = sizeof tables / sizeof tables[0],
};

int fl_schema_n_fields(void)
{
    int n = 0;
    for (int t = 0; t < N_TABLES; t++) {
        n += tables[t]->n;
    }
    assert(n <= FL_SCHEMA_MAX);
    return n;
}

const fl_field *fl_schema_field(int index)
{
    int t = 0;
    for (; index >= tables[t]->n; t++) {
        index -= tables[t]->n;
    }
    return &tables[t]->fields[index];
}

int fl_schema_n_sections(void)
{
    return N_SECTIONS;
}

const fl_section *fl_schema_section(int index)
{
    return &sections[index];
}
