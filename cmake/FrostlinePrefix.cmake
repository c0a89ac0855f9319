# Files that name where the program is get the prefix when they are installed: `cmake --install
# --prefix DIR` may choose another one than the configuration, and the package has /usr. No file
# names DESTDIR, where the tree lies until it is moved to the prefix.
#
#     @FL_PREFIX@, @FL_BINDIR@, @FL_LIBDIR@    in a file; the last two are folders of the prefix
#     @FL_UNIT_PREFIX@    the prefix between the double quotes of a command of systemd
#     @FL_UNIT_URI@       the prefix in a URI of systemd
#
# fl_install_with_prefix(FILE|PROGRAM source folder name)
function(fl_install_with_prefix type source folder name)
  set(made "${PROJECT_BINARY_DIR}/with-prefix/${name}")
  install(CODE "
    set(FL_PREFIX \"\${CMAKE_INSTALL_PREFIX}\")
    string(REPLACE \"%\" \"%%\" FL_UNIT_PREFIX \"\${FL_PREFIX}\")
    string(REPLACE \"%\" \"%%25\" FL_UNIT_URI \"\${FL_PREFIX}\")
    string(REPLACE \" \" \"%%20\" FL_UNIT_URI \"\${FL_UNIT_URI}\")
    set(FL_BINDIR \"${CMAKE_INSTALL_BINDIR}\")
    set(FL_LIBDIR \"${CMAKE_INSTALL_LIBDIR}\")
    configure_file(\"${PROJECT_SOURCE_DIR}/${source}\" \"${made}\" @ONLY)
    file(INSTALL \"${made}\" TYPE ${type} DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${folder}\")")
endfunction()
