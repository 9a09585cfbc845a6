# baton-frontend, the node's relay. An ordinary program: none of it goes into libbaton.so.
add_library(baton_frontend_core STATIC frontend.cc)
target_compile_definitions(baton_frontend_core PRIVATE BATON_VERSION="${PROJECT_VERSION}")
target_link_libraries(baton_frontend_core PRIVATE baton_options baton_sanitizers
                      PUBLIC baton_node)
baton_program(baton-frontend SOURCES frontend_main.cc
              DEPENDS baton_frontend_core)
