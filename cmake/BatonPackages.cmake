# What is installed, and Debian packages of it, one for each component: scripts/package makes them.
# `cmake --install` leaves out what only a package should put into /etc.
get_property(programs GLOBAL PROPERTY BATON_PROGRAMS)
foreach(program ${programs})
  set(component baton)
  if(program MATCHES "^(batond|baton-frontend)$")
    set(component batond)
  elseif(program MATCHES "^(baton-k8s|baton-demo)$")
    set(component ${program})
  endif()
  install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT ${component})
endforeach()

install(PROGRAMS ${CMAKE_SOURCE_DIR}/k8s/kubectl/kubectl-baton
                 ${CMAKE_SOURCE_DIR}/k8s/kubectl/kubectl_complete-baton
        DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT baton)

# What the demo simulates GPUs with, where no other program looks for such libraries.
install(TARGETS baton_sim_cuda baton_sim_nvml COMPONENT baton-demo
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/baton/sim NAMELINK_SKIP)

set(packaging ${CMAKE_SOURCE_DIR}/packaging)
# The folder of the programs is known when they are installed.
foreach(unit batond baton-frontend)
  install(CODE "set(bin \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}\")
configure_file(${packaging}/${unit}.service.in ${CMAKE_BINARY_DIR}/packaging/${unit}.service @ONLY)"
          COMPONENT batond)
  install(FILES ${CMAKE_BINARY_DIR}/packaging/${unit}.service DESTINATION lib/systemd/system
          COMPONENT batond)
endforeach()
install(FILES ${packaging}/batond.toml DESTINATION /etc/baton COMPONENT batond EXCLUDE_FROM_ALL)

# Manual pages and completions, which the programs say of themselves. Without help2man there are none.
find_program(BATON_HELP2MAN help2man)
set(said ${CMAKE_BINARY_DIR}/packaging/said)
set(bin ${CMAKE_BINARY_DIR}/bin)
add_custom_target(baton_manuals DEPENDS ${said}/stamp)
add_custom_command(OUTPUT ${said}/stamp
  COMMAND ${packaging}/make-manuals ${bin} ${said}/man ${PROJECT_VERSION}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${said}/completions
  COMMAND ${bin}/baton completion bash > ${said}/completions/baton
  COMMAND ${bin}/baton completion zsh > ${said}/completions/_baton
  COMMAND ${bin}/baton completion fish > ${said}/completions/baton.fish
  COMMAND ${CMAKE_COMMAND} -E touch ${said}/stamp
  DEPENDS ${packaging}/make-manuals ${programs} VERBATIM)
foreach(pages "baton;1;/baton(-.*)?[.]1[.]gz$;/baton-demo[.]" "baton-demo;1;/baton-demo[.]1[.]gz$;^$"
              "batond;8;/baton(d|-frontend)[.]8[.]gz$;^$" "baton-k8s;8;/baton-k8s(-.*)?[.]8[.]gz$;^$")
  list(POP_FRONT pages component section names others)
  install(DIRECTORY ${said}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section} COMPONENT ${component}
          OPTIONAL FILES_MATCHING REGEX ${names} REGEX ${others} EXCLUDE)
endforeach()
install(FILES ${said}/completions/baton COMPONENT baton OPTIONAL
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${said}/completions/_baton COMPONENT baton OPTIONAL
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES ${said}/completions/baton.fish COMPONENT baton OPTIONAL
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# The Python package, as a wheel; scripts/package puts it beside the others.
find_program(BATON_PYTHON python3)
if(BATON_PYTHON)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/baton/*)
  set(wheel ${CMAKE_BINARY_DIR}/packaging/baton-${PROJECT_VERSION}-py3-none-any.whl)
  add_custom_command(OUTPUT ${wheel}
    COMMAND ${BATON_PYTHON} ${CMAKE_SOURCE_DIR}/python/make_wheel.py
            ${CMAKE_BINARY_DIR}/packaging ${PROJECT_VERSION}
    DEPENDS ${CMAKE_SOURCE_DIR}/python/make_wheel.py ${CMAKE_SOURCE_DIR}/python/README.md
            ${CMAKE_SOURCE_DIR}/LICENSE ${sources} VERBATIM)
  add_custom_target(baton_wheel DEPENDS ${wheel})
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_VENDOR "The Baton authors")
set(CPACK_PACKAGE_CONTACT "The Baton authors <baton@baton.dev>")
set(CPACK_PACKAGE_HOMEPAGE_URL https://baton.dev)
set(CPACK_STRIP_FILES ON)
# So that /etc is the package's, not this machine's.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_ALL baton batond libbaton-hook baton-k8s baton-demo)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE zstd)

# baton_package(NAME DEPENDS DESCRIPTION): of the component of that name.
macro(baton_package name depends description)
  string(TOUPPER ${name} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${depends}")
  set(CPACK_COMPONENT_${key}_DESCRIPTION "${description}")
  install(FILES ${packaging}/copyright DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${name}
          COMPONENT ${name})
endmacro()
baton_package(libbaton-hook "" "Baton's CUDA hook
 Preloaded into a pod's programs, it lets them launch on the GPU when it is their turn, meters their
 time and caps their memory. It needs nothing but libc, so containers can mount it.")
baton_package(baton "libbaton-hook (= ${PROJECT_VERSION})" "shares GPUs among pods by time: command line
 Gives a program a percentage of a GPU, shows who gets what, reports who used what, simulates
 workloads, and measures Baton's own cost.")
baton_package(batond "baton (= ${PROJECT_VERSION}), init-system-helpers (>= 1.54)" "shares GPUs among pods by time: daemon
 Gives the token of each GPU to the waiting pod that is furthest below its share, keeps the books of
 who used what, and serves a page and metrics. baton-frontend connects a node to a central batond.")
baton_package(baton-demo "batond (= ${PROJECT_VERSION})" "shares GPUs among pods by time: demonstration
 Shows Baton at work on simulated GPUs, with a daemon, a page and pods of its own, in half a minute.
 No GPU is needed, and none that there is is touched.")
baton_package(baton-k8s "" "shares GPUs among pods by time: Kubernetes
 Device plugin, webhook, binder and scheduler extender. Clusters usually run them from the image
 that the Helm chart names.")
set(CPACK_DEBIAN_BATOND_PACKAGE_CONTROL_EXTRA
    ${packaging}/batond/conffiles ${packaging}/batond/postinst ${packaging}/batond/prerm ${packaging}/batond/postrm)
include(CPack)
