# Installs the programs. (libbaton.so is installed where it is made, in hook/.)
get_property(programs GLOBAL PROPERTY BATON_PROGRAMS)
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
