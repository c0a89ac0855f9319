/* A shared object that is no plugin. */
int plugin_empty;
int plugin_empty = 1;
