"""What every server of this package needs: a guard before the application, a patient protocol, a socket and an end."""
