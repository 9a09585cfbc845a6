# What the hook costs per launch, beside a driver that does nothing.
add_library(baton_stub_cuda SHARED stub_driver.cc)
target_link_libraries(baton_stub_cuda PRIVATE baton_options baton_cuda)
target_compile_options(baton_stub_cuda PRIVATE -fvisibility=hidden)
# Its own address of cuLaunchKernel is to be its own, not the hook's.
target_link_options(baton_stub_cuda PRIVATE -Wl,-Bsymbolic)
set_target_properties(baton_stub_cuda PROPERTIES
  OUTPUT_NAME cuda SOVERSION 1 VERSION 1 LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib/stub)

baton_program(bench_launch_overhead NO_INSTALL SOURCES launch_overhead.cc
              DEPENDS baton_wire baton_cuda benchmark::benchmark ${CMAKE_DL_LIBS})
target_compile_definitions(bench_launch_overhead PRIVATE
  BATON_HOOK_LIBRARY="$<TARGET_FILE:baton_hook>"
  BATON_STUB_DRIVER_FOLDER="$<TARGET_FILE_DIR:baton_stub_cuda>")
add_dependencies(bench_launch_overhead baton_hook baton_stub_cuda)
