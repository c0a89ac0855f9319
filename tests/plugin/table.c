/* A plugin whose symbol is data, as of one that expects its table to be read. */
extern const int frostline_plugin[64];

__attribute__((visibility("default"))) const int frostline_plugin[64] = {1};
