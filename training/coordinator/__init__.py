"""The coordinator of a job: decides, and computes nothing.

======================= ==========================================================================================
``coordinator``         the loop: passes on messages and events, and does what is due by time
``roster``              the tasks there are
``grants``              the tasks there should be, by node
``membership``          starts and ends tasks until the roster is as granted
``training``            hands out samples, commits gradients: the steps of the training itself
``state``               moves the parameters: to the first servers, into checkpoints, to other servers, back
``validation``          loss and accuracy of a version
``rate``                the learning rate over the course of the job
``control``, ``requests``  how the job is asked something while it runs, and the answers
``autoscale``           whether more or fewer workers would help
``record``, ``outcome``  what is written about the run, and how it ended
======================= ==========================================================================================
"""
