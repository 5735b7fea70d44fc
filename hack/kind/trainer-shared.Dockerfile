# The trainer for tests: the operator's image with another search path. torch and what it needs are not in it;
# the nodes show every container the folder where this machine has them.
ARG OPERATOR
FROM ${OPERATOR}
USER 0:0
RUN ["python", "-c", "import pathlib, sysconfig; pathlib.Path(sysconfig.get_path('purelib'), 'frameworks.pth').write_text('/opt/frameworks\\n')"]
USER 65532:65532
ENV OMP_NUM_THREADS=1
ENTRYPOINT ["spes-trainer"]
